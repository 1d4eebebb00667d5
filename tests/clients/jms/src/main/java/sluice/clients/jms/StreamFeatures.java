package sluice.clients.jms;

import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import java.util.ArrayList;
import java.util.List;
import sluice.clients.Expect;

/** Streams, whose messages stay: a consumer of `stream::name` goes on where that name has been. */
final class StreamFeatures {
    private StreamFeatures() {}

    /** Each consumer gets what comes after it, and none takes it from another; a selector is the broker's. */
    static void read(Connections connections, String p) throws JMSException {
        Session session = Talk.session(connections.open());
        Queue stream = session.createQueue(p + ".stream.read");
        send(session, stream, 0, 2);
        MessageConsumer first = session.createConsumer(stream);
        MessageConsumer second = session.createConsumer(stream);
        MessageConsumer odd = session.createConsumer(stream, "odd = TRUE");
        send(session, stream, 2, 6);
        Talk.only("one consumer", first, texts(2, 6));
        Talk.only("another", second, texts(2, 6));
        Talk.only("with a selector", odd, List.of("m3", "m5"));
    }

    /** What a consumer had prefetched and not acknowledged when it closed comes to the next one of its name. */
    static void named(Connections connections, String p) throws JMSException {
        Queue stream = Talk.session(connections.open()).createQueue(p + ".stream.named");
        Queue billing = Talk.session(connections.open()).createQueue(p + ".stream.named::billing");
        Session session = Talk.session(connections.open());
        // A new name begins with what comes from then on.
        session.createConsumer(billing).close();
        send(session, stream, 0, 100);
        int next = 0;
        for (int life = 0; life < 4; life++) {
            try (Connections own = new Connections()) {
                MessageConsumer consumer = Talk.clientAcknowledge(own.open()).createConsumer(billing);
                for (int i = 0; i < 20; i++) {
                    Message message = Talk.next(consumer);
                    Expect.equal("life " + life, "m" + (next + i), Talk.text(message));
                    if (i == 14) {
                        message.acknowledge();
                    }
                }
                next += 15;
                if (life % 2 == 0) {
                    consumer.close();
                }
            }
        }
        MessageConsumer rest = Talk.session(connections.open()).createConsumer(billing);
        Talk.only("the rest", rest, texts(next, 100));
    }

    /** `recover` brings back what was not acknowledged, in its order, and says that it was delivered before. */
    static void recovered(Connections connections, String p) throws JMSException {
        Session session = Talk.clientAcknowledge(connections.open());
        Queue stream = session.createQueue(p + ".stream.recovered");
        MessageConsumer consumer = session.createConsumer(session.createQueue(p + ".stream.recovered::billing"));
        send(session, stream, 0, 10);
        for (int i = 0; i < 3; i++) {
            Message message = Talk.next(consumer);
            if (i == 0) {
                message.acknowledge();
            }
        }
        session.recover();
        List<String> came = new ArrayList<>();
        for (int i = 1; i < 10; i++) {
            Message message = Talk.next(consumer);
            came.add(Talk.text(message));
            Expect.equal("redelivered, " + Talk.text(message), i < 3, message.getJMSRedelivered());
            message.acknowledge();
        }
        Expect.equal("after recover", texts(1, 10), came);
        Talk.silent("then", consumer);
    }

    private static void send(Session session, Queue queue, int from, int to) throws JMSException {
        MessageProducer producer = session.createProducer(queue);
        for (int i = from; i < to; i++) {
            Message message = session.createTextMessage("m" + i);
            message.setBooleanProperty("odd", i % 2 == 1);
            producer.send(message);
        }
        producer.close();
    }

    private static List<String> texts(int from, int to) {
        List<String> found = new ArrayList<>();
        for (int i = from; i < to; i++) {
            found.add("m" + i);
        }
        return found;
    }
}
