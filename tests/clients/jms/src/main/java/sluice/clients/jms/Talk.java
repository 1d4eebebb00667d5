package sluice.clients.jms;

import jakarta.jms.Connection;
import jakarta.jms.DeliveryMode;
import jakarta.jms.Destination;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import sluice.clients.Expect;

/** What features say over a session: send texts, take texts, hear nothing, be refused. */
final class Talk {
    static final long SOON_MS = 5_000;
    static final long SILENCE_MS = 500;

    private static final int INDIVIDUAL_ACKNOWLEDGE = 101; // Qpid JMS's own, beside JMS's modes 0 to 3

    interface Attempt {
        void run() throws JMSException;
    }

    private Talk() {}

    static Session session(Connection connection) throws JMSException {
        return connection.createSession(Session.AUTO_ACKNOWLEDGE);
    }

    static Session clientAcknowledge(Connection connection) throws JMSException {
        return connection.createSession(Session.CLIENT_ACKNOWLEDGE);
    }

    static Session individualAcknowledge(Connection connection) throws JMSException {
        return connection.createSession(INDIVIDUAL_ACKNOWLEDGE);
    }

    static List<String> numbered(String name, int count) {
        return IntStream.range(0, count).mapToObj(i -> name + i).toList();
    }

    static void send(Session session, Destination destination, String... texts) throws JMSException {
        send(session, destination, List.of(texts));
    }

    /** Returns once all are accepted. */
    static void send(Session session, Destination destination, List<String> texts) throws JMSException {
        MessageProducer producer = session.createProducer(destination);
        for (String text : texts) {
            producer.send(session.createTextMessage(text));
        }
        producer.close();
    }

    /** Many of them, not persistent: Qpid JMS then waits for no outcome before it sends the next. */
    static void sendMany(Session session, Destination destination, List<String> texts) throws JMSException {
        MessageProducer producer = session.createProducer(destination);
        producer.setDeliveryMode(DeliveryMode.NON_PERSISTENT);
        for (String text : texts) {
            producer.send(session.createTextMessage(text));
        }
        producer.close();
    }

    static Message next(MessageConsumer consumer) throws JMSException {
        Message message = consumer.receive(SOON_MS);
        Expect.that(message != null, "a message within " + SOON_MS + " ms", "none");
        return message;
    }

    /** The next message has this text, and comes for the time that it says. */
    static Message counted(MessageConsumer consumer, String text, int delivery) throws JMSException {
        Message came = next(consumer);
        Expect.equal("next", text, text(came));
        Expect.equal("JMSXDeliveryCount of " + text, delivery, came.getIntProperty("JMSXDeliveryCount"));
        Expect.equal("JMSRedelivered of " + text, delivery > 1, came.getJMSRedelivered());
        return came;
    }

    static String text(Message message) throws JMSException {
        return message == null ? null : ((TextMessage) message).getText();
    }

    static String nextText(MessageConsumer consumer) throws JMSException {
        return text(next(consumer));
    }

    /** The next texts, as many as come, at most `count`. */
    static List<String> take(MessageConsumer consumer, int count) throws JMSException {
        List<String> texts = new ArrayList<>();
        while (texts.size() < count) {
            Message message = consumer.receive(SOON_MS);
            if (message == null) {
                break;
            }
            texts.add(text(message));
        }
        return texts;
    }

    /** Exactly these come, in this order, and nothing after them. */
    static void only(String who, MessageConsumer consumer, List<String> texts) throws JMSException {
        Expect.equal(who + " gets", texts, take(consumer, texts.size()));
        silent(who, consumer);
    }

    static void silent(String who, MessageConsumer consumer) throws JMSException {
        Expect.equal(who + " gets within " + SILENCE_MS + " ms", null, text(consumer.receive(SILENCE_MS)));
    }

    /** Each of the texts comes to one of the two, once; both get some. Their prefetch must be small. */
    static void divided(MessageConsumer one, MessageConsumer other, List<String> texts) throws JMSException {
        List<String> first = new ArrayList<>();
        List<String> second = new ArrayList<>();
        long end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(SOON_MS);
        while (first.size() + second.size() < texts.size() && System.nanoTime() < end) {
            add(first, one.receive(100));
            add(second, other.receive(100));
        }
        add(first, one.receive(SILENCE_MS));
        add(second, other.receive(SILENCE_MS));
        List<String> both = new ArrayList<>(first);
        both.addAll(second);
        both.sort(null);
        Expect.equal("the two get together", texts.stream().sorted().toList(), both);
        Expect.that(!first.isEmpty() && !second.isEmpty(), "both to get some", first + " and " + second);
    }

    private static void add(List<String> texts, Message message) throws JMSException {
        if (message != null) {
            texts.add(text(message));
        }
    }

    /** Qpid JMS puts the condition into the exception's text: "… [condition = amqp:not-found]". */
    static void refused(String what, String condition, Attempt attempt) {
        try {
            attempt.run();
        } catch (JMSException e) {
            Expect.that(String.valueOf(e.getMessage()).contains("[condition = " + condition + "]"),
                    what + " refused with " + condition, e);
            return;
        }
        throw Expect.failure(what + " refused with " + condition, "no refusal");
    }
}
