package sluice.clients.jms;

import jakarta.jms.Connection;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.qpid.jms.JmsConnectionFactory;
import sluice.clients.Report;

/**
 * Sends numbered messages on some connections and receives them on another; the library alone looks for a broker.
 *
 * <p>With a count of 0 it sends until its standard input ends; with SLUICE_PAUSE_MS each sender waits so long behind
 * a message.
 */
public final class Transfer {
    private static final long PATIENCE_MS = 60_000;
    private static final long LOOK_MS = 500;
    private static final int EVERY = 20;
    private static final int SENDERS = Integer.parseInt(System.getenv().getOrDefault("SLUICE_SENDERS", "8"));
    private static final long PAUSE_MS = Long.parseLong(System.getenv().getOrDefault("SLUICE_PAUSE_MS", "0"));

    private final JmsConnectionFactory factory = new JmsConnectionFactory(System.getenv("URL"));
    private final String address;
    /** The last number to send, not known yet while standard input is open. */
    private volatile int last;
    private int next = 1;
    private final AtomicInteger accepted = new AtomicInteger();
    private final Set<String> received = ConcurrentHashMap.newKeySet();
    private volatile int again;
    private volatile Exception failed;

    private Transfer(String address, int count) {
        this.address = address;
        this.last = count == 0 ? Integer.MAX_VALUE : count;
    }

    /** Prints a line for every 20 messages that were accepted, and one at the end. */
    public static void run(String address, int count) throws Exception {
        Transfer transfer = new Transfer(address, count);
        if (count == 0) {
            Thread reading = new Thread(transfer::readInput);
            reading.setDaemon(true);
            reading.start();
        }
        transfer.run();
    }

    private void run() throws Exception {
        List<Thread> senders = new ArrayList<>();
        for (int each = 0; each < SENDERS; each++) {
            Thread sending = new Thread(() -> {
                try {
                    send();
                } catch (Exception e) {
                    failed = e;
                }
            });
            sending.start();
            senders.add(sending);
        }
        receive();
        for (Thread sending : senders) {
            sending.join(PATIENCE_MS);
        }
        if (failed != null) {
            throw failed;
        }
        say();
    }

    /** Sends no new number once standard input has ended. */
    private void readInput() {
        try {
            System.in.readAllBytes();
        } catch (IOException e) {
            failed = e;
        }
        synchronized (this) {
            last = next - 1;
        }
    }

    /** The number to send next, 0 for none. */
    private synchronized int taken() {
        return next > last ? 0 : next++;
    }

    private void say() {
        Report.transferred(accepted.get(), received.size(), again);
    }

    /** Receives until all have come, or nothing has for a minute. */
    private void receive() throws Exception {
        try (Connection connection = factory.createConnection()) {
            connection.start();
            Session session = connection.createSession(Session.AUTO_ACKNOWLEDGE);
            MessageConsumer consumer = session.createConsumer(session.createQueue(address));
            long cameAt = System.nanoTime();
            while (received.size() < last && failed == null) {
                Message message = consumer.receive(LOOK_MS);
                if (message != null) {
                    cameAt = System.nanoTime();
                    again += received.add(((TextMessage) message).getText()) ? 0 : 1;
                } else if (System.nanoTime() - cameAt > PATIENCE_MS * 1_000_000) {
                    break;
                }
            }
        }
    }

    /** Sends messages one at a time, each of which waits for its outcome, as JMS clients do. */
    private void send() throws Exception {
        try (Connection connection = factory.createConnection()) {
            Session session = connection.createSession(Session.AUTO_ACKNOWLEDGE);
            Queue queue = session.createQueue(address);
            MessageProducer producer = session.createProducer(queue);
            for (int number = taken(); number > 0; number = taken()) {
                producer.send(session.createTextMessage(Integer.toString(number)));
                if (accepted.incrementAndGet() % EVERY == 0) {
                    say();
                }
                Thread.sleep(PAUSE_MS);
            }
        }
    }
}
