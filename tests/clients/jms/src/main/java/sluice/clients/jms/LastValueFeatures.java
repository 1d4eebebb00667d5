package sluice.clients.jms;

import jakarta.jms.DeliveryMode;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.QueueBrowser;
import jakarta.jms.Session;
import java.util.ArrayList;
import java.util.Enumeration;
import java.util.List;
import sluice.clients.Expect;

/** Queues with `last_value_key: share`, where the key of a text such as `a1` is its first letter. */
final class LastValueFeatures {
    private static final String KEY = "share";
    private static final String PULL = "jms.prefetchPolicy.all=0";

    private LastValueFeatures() {}

    /** Values of ten keys, each replaced while nobody consumes: the last of each comes, once. */
    static void replaced(Connections connections, String p) throws JMSException {
        Session session = Talk.session(connections.open());
        Queue queue = session.createQueue(p + ".last.replaced");
        List<String> last = new ArrayList<>();
        for (int round = 0; round < 20; round++) {
            last.clear();
            for (char key = 'a'; key < 'k'; key++) {
                last.add(key + "" + round);
            }
            send(session, queue, last);
        }
        MessageConsumer consumer = session.createConsumer(queue);
        for (String text : last) {
            Message came = Talk.counted(consumer, text, 1);
            Expect.equal("the key of " + text, text.substring(0, 1), came.getStringProperty(KEY));
        }
        Talk.silent("then", consumer);
    }

    /** A newer value goes to the end, or with `last_value_position: kept` takes the place of the older one. */
    static void position(Connections connections, String p) throws JMSException {
        Session session = Talk.session(connections.open());
        Queue renewed = session.createQueue(p + ".last.renewed");
        Queue kept = session.createQueue(p + ".last.kept");
        List<String> texts = List.of("a1", "b1", "c1", "a2", "b2", "d1", "b3");
        send(session, renewed, texts);
        send(session, kept, texts);
        Talk.only("a consumer, renewed,", session.createConsumer(renewed), List.of("c1", "a2", "d1", "b3"));
        Talk.only("a consumer, kept,", session.createConsumer(kept), List.of("a2", "b3", "c1", "d1"));
    }

    /** A browser holds no value back; consumers of a queue with `non_destructive` take none. */
    static void read(Connections connections, String p) throws JMSException {
        Session session = Talk.session(connections.open());
        Queue plain = session.createQueue(p + ".last.browsed");
        send(session, plain, List.of("a1", "b1", "a2"));
        Expect.equal("browsed", List.of("b1", "a2"), browsed(session, plain));
        QueueBrowser open = session.createBrowser(plain);
        Expect.that(open.getEnumeration().hasMoreElements(), "a message to browse", "none");
        send(session, plain, List.of("b2"));
        Expect.equal("browsed beside another browser", List.of("a2", "b2"), browsed(session, plain));
        open.close();
        Talk.only("a consumer", session.createConsumer(plain), List.of("a2", "b2"));

        Queue board = session.createQueue(p + ".last.read");
        send(session, board, List.of("a1", "b1", "a2"));
        Session acknowledging = Talk.clientAcknowledge(connections.open());
        MessageConsumer first = acknowledging.createConsumer(board);
        Expect.equal("the first reader", "b1", Talk.nextText(first));
        Message second = Talk.next(first);
        Expect.equal("the first reader, then", "a2", Talk.text(second));
        second.acknowledge();
        MessageConsumer other = Talk.session(connections.open()).createConsumer(board);
        Talk.only("another reader", other, List.of("b1", "a2"));
        send(session, board, List.of("b2"));
        Talk.only("the first, of what is new,", first, List.of("b2"));
        Talk.only("the other, of what is new,", other, List.of("b2"));
        first.close();
        other.close();
        Expect.equal("browsed at last", List.of("a2", "b2"), browsed(session, board));
    }

    /** The key is a property of any type: 5 and "5" are two; messages without one, or with "", stay beside each other. */
    static void key(Connections connections, String p) throws JMSException {
        Session session = Talk.session(connections.open());
        Queue queue = session.createQueue(p + ".last.key");
        MessageProducer producer = session.createProducer(queue);
        Object[] keys = {"5", 5, "5", null, null, 5, true, true, "", "", "\u00e4", "\u00e4"};
        for (int i = 0; i < keys.length; i++) {
            Message message = session.createTextMessage("m" + i);
            if (keys[i] != null) {
                message.setObjectProperty(KEY, keys[i]);
            }
            producer.send(message);
        }
        MessageConsumer consumer = session.createConsumer(queue);
        Talk.only("a consumer", consumer, List.of("m2", "m3", "m4", "m5", "m7", "m8", "m9", "m11"));
    }

    /** What a rollback brings back yields to a newer value; where there is none it comes again, and is replaced then. */
    static void rolledBack(Connections connections, String p) throws JMSException {
        Session sending = Talk.session(connections.open());
        Session session = TransactionFeatures.transacted(connections.open(PULL));
        Queue queue = session.createQueue(p + ".last.back");
        MessageConsumer consumer = session.createConsumer(queue);
        send(sending, queue, List.of("a1"));
        Talk.counted(consumer, "a1", 1);
        send(sending, queue, List.of("a2"));
        session.rollback();
        Talk.counted(consumer, "a2", 1);
        Talk.silent("then", consumer);
        session.rollback();
        Talk.counted(consumer, "a2", 2);
        session.rollback();
        send(sending, queue, List.of("a3"));
        Talk.counted(consumer, "a3", 1);
        send(sending, queue, List.of("a4"));
        session.commit();
        Talk.counted(consumer, "a4", 1);
        session.commit();
        Talk.silent("at last", consumer);
    }

    /** A value that expires doesn't bring the older one back; one that is replaced takes its time along. */
    static void expiry(Connections connections, String p) throws Exception {
        Session session = Talk.session(connections.open("jms.localMessageExpiry=false"));
        Queue queue = session.createQueue(p + ".last.expiry");
        send(session, queue, 300, "a1");
        send(session, queue, 0, "a2");
        send(session, queue, 0, "b1");
        send(session, queue, 300, "b2");
        Expect.equal("at first", List.of("a2", "b2"), browsed(session, queue));
        Thread.sleep(700);
        Expect.equal("after 700 ms", List.of("a2"), browsed(session, queue));
        send(session, queue, 0, "b3");
        Talk.only("a consumer", session.createConsumer(queue), List.of("a2", "b3"));
    }

    /** What a transacted session sends replaces at the commit, and nothing after a rollback. */
    static void transacted(Connections connections, String p) throws JMSException {
        Session session = TransactionFeatures.transacted(connections.open());
        Session other = Talk.session(connections.open());
        Queue queue = session.createQueue(p + ".last.transacted");
        send(other, queue, List.of("a0"));
        for (int attempt = 0; attempt < 2; attempt++) {
            send(session, queue, List.of("a1", "b1", "a2"));
            Expect.equal("before the end", List.of("a0"), browsed(other, queue));
            if (attempt == 0) {
                session.rollback();
                Expect.equal("after the rollback", List.of("a0"), browsed(other, queue));
            }
        }
        session.commit();
        Expect.equal("after the commit", List.of("b1", "a2"), browsed(other, queue));
        send(session, queue, List.of("a3"));
        send(other, queue, List.of("a4"));
        session.commit();
        Talk.only("a consumer: the commit was later, and", other.createConsumer(queue), List.of("b1", "a3"));
    }

    private static void send(Session session, Queue queue, List<String> texts) throws JMSException {
        MessageProducer producer = session.createProducer(queue);
        for (String text : texts) {
            producer.send(value(session, text));
        }
        producer.close();
    }

    private static void send(Session session, Queue queue, long ttlMs, String text) throws JMSException {
        MessageProducer producer = session.createProducer(queue);
        producer.send(value(session, text), DeliveryMode.PERSISTENT, Message.DEFAULT_PRIORITY, ttlMs);
        producer.close();
    }

    private static Message value(Session session, String text) throws JMSException {
        Message message = session.createTextMessage(text);
        message.setStringProperty(KEY, text.substring(0, 1));
        return message;
    }

    private static List<String> browsed(Session session, Queue queue) throws JMSException {
        List<String> texts = new ArrayList<>();
        QueueBrowser browser = session.createBrowser(queue);
        for (Enumeration<?> each = browser.getEnumeration(); each.hasMoreElements(); ) {
            texts.add(Talk.text((Message) each.nextElement()));
        }
        browser.close();
        return texts;
    }
}
