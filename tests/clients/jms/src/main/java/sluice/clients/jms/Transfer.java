package sluice.clients.jms;

import jakarta.jms.Connection;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.qpid.jms.JmsConnectionFactory;
import sluice.clients.Report;

/** Sends numbered messages on some connections and receives them on another; the library alone looks for a broker. */
public final class Transfer {
    private static final long PATIENCE_MS = 60_000;
    private static final int EVERY = 100;
    private static final int SENDERS = Integer.parseInt(System.getenv().getOrDefault("SLUICE_SENDERS", "8"));

    private Transfer() {}

    /** Prints a line for every 100 messages that were accepted, and one at the end. */
    public static void run(String address, int count) throws Exception {
        JmsConnectionFactory factory = new JmsConnectionFactory(System.getenv("URL"));
        Exception[] failed = new Exception[1];
        AtomicInteger accepted = new AtomicInteger();
        List<Thread> senders = new ArrayList<>();
        for (int first = 1; first <= SENDERS; first++) {
            int begin = first;
            Thread sending = new Thread(() -> {
                try {
                    send(factory, address, begin, count, accepted);
                } catch (Exception e) {
                    failed[0] = e;
                }
            });
            sending.start();
            senders.add(sending);
        }
        Set<String> received = new HashSet<>();
        int again = 0;
        try (Connection connection = factory.createConnection()) {
            connection.start();
            Session session = connection.createSession(Session.AUTO_ACKNOWLEDGE);
            MessageConsumer consumer = session.createConsumer(session.createQueue(address));
            while (received.size() < count) {
                Message message = consumer.receive(PATIENCE_MS);
                if (message == null) {
                    break;
                }
                again += received.add(((TextMessage) message).getText()) ? 0 : 1;
            }
        }
        for (Thread sending : senders) {
            sending.join(PATIENCE_MS);
        }
        if (failed[0] != null) {
            throw failed[0];
        }
        Report.transferred(count, received.size(), again);
    }

    /** Sends every so many messages, each of which waits for its outcome, as JMS clients do. */
    private static void send(
            JmsConnectionFactory factory, String address, int first, int count, AtomicInteger accepted)
            throws Exception {
        try (Connection connection = factory.createConnection()) {
            Session session = connection.createSession(Session.AUTO_ACKNOWLEDGE);
            Queue queue = session.createQueue(address);
            MessageProducer producer = session.createProducer(queue);
            for (int number = first; number <= count; number += SENDERS) {
                producer.send(session.createTextMessage(Integer.toString(number)));
                int done = accepted.incrementAndGet();
                if (done % EVERY == 0) {
                    Report.transferred(done, 0, 0);
                }
            }
        }
    }
}
