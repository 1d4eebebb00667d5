package sluice.clients.jms;

import jakarta.jms.BytesMessage;
import jakarta.jms.Connection;
import jakarta.jms.DeliveryMode;
import jakarta.jms.InvalidSelectorException;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.QueueBrowser;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Enumeration;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import sluice.clients.Expect;

/** Features of queues: what is sent, held back, taken, given back, looked at and chosen. */
final class QueueFeatures {
    private static final String ACK_TYPE = "JMS_AMQP_ACK_TYPE"; // of the message that is acknowledged
    private static final int REJECTED = 2;
    private static final int RELEASED = 3;
    private static final int MODIFIED_FAILED = 4;

    private QueueFeatures() {}

    static void sendReceive(Connections connections, String p) throws JMSException {
        Connection connection = connections.open();
        Session session = Talk.session(connection);
        Queue queue = session.createQueue(p + ".plain");
        List<String> texts = Talk.numbered("m", 100);
        Talk.send(session, queue, texts);
        MessageConsumer consumer = session.createConsumer(queue);
        Expect.equal("the receiver gets", texts, Talk.take(consumer, texts.size()));
        consumer.close();
        Talk.silent("the next receiver", session.createConsumer(queue));
    }

    static void presettled(Connections connections, String p) throws JMSException {
        Session session = Talk.session(connections.open("jms.presettlePolicy.presettleAll=true"));
        Queue queue = session.createQueue(p + ".presettled");
        List<String> texts = Talk.numbered("m", 100);
        Talk.send(session, queue, texts);
        Talk.only("the receiver", session.createConsumer(queue), texts);
    }

    /** The eleventh is sent from a thread of its own: without credit Qpid JMS waits within send. */
    static void blocked(Connections connections, String p) throws Exception {
        Session sending = Talk.session(connections.open());
        Queue queue = sending.createQueue(p + ".small");
        Talk.send(sending, queue, Talk.numbered("m", 10));
        MessageProducer producer = sending.createProducer(queue);
        CompletableFuture<String> eleventh = CompletableFuture.supplyAsync(() -> outcome(sending, producer, "m10"));
        try {
            String outcome = eleventh.get(Talk.SILENCE_MS, TimeUnit.MILLISECONDS);
            throw Expect.failure("no outcome of the eleventh within " + Talk.SILENCE_MS + " ms", outcome);
        } catch (TimeoutException e) {
            // as it must be
        }
        Session receiving = Talk.session(connections.open("jms.prefetchPolicy.all=1"));
        Talk.take(receiving.createConsumer(queue), 7);
        Expect.equal("the eleventh's outcome", "accepted", eleventh.get(Talk.SOON_MS, TimeUnit.MILLISECONDS));
    }

    private static String outcome(Session session, MessageProducer producer, String text) {
        try {
            producer.send(session.createTextMessage(text));
            return "accepted";
        } catch (JMSException e) {
            return e.toString();
        }
    }

    /** Prefetch counts what the application hasn't received yet, so the first consumer doesn't receive at first. */
    static void credit(Connections connections, String p) throws JMSException {
        Connection three = connections.open("jms.prefetchPolicy.all=3");
        Session holding = Talk.clientAcknowledge(three);
        Queue queue = holding.createQueue(p + ".credit");
        MessageConsumer first = holding.createConsumer(queue);
        List<String> texts = Talk.numbered("m", 10);
        Talk.send(Talk.session(three), queue, texts); // after the flow, being on its connection
        MessageConsumer other = Talk.clientAcknowledge(connections.open()).createConsumer(queue);
        Talk.only("the other", other, texts.subList(3, 10));
        Talk.only("the first", first, texts.subList(0, 3));
    }

    static void outcomes(Connections connections, String p) throws JMSException {
        Session session = Talk.individualAcknowledge(connections.open());
        Queue queue = session.createQueue(p + ".outcomes");
        MessageConsumer consumer = session.createConsumer(queue);

        Talk.send(session, queue, "released");
        settle(Talk.next(consumer), RELEASED);
        Message again = Talk.next(consumer);
        Expect.equal("again", "released", Talk.text(again));
        again.acknowledge();

        Talk.send(session, queue, "rejected");
        settle(Talk.next(consumer), REJECTED);
        Talk.silent("the receiver, after a rejection,", consumer);

        Talk.send(session, queue, "modified");
        settle(Talk.next(consumer), MODIFIED_FAILED);
        Message failed = Talk.next(consumer);
        Expect.equal("again", "modified", Talk.text(failed));
        Expect.equal("delivery-count", 1, deliveryCount(failed));
        failed.acknowledge();
    }

    private static void settle(Message message, int outcome) throws JMSException {
        message.setIntProperty(ACK_TYPE, outcome);
        message.acknowledge();
    }

    /** JMS counts the present delivery, AMQP the failed ones before it. */
    private static int deliveryCount(Message message) throws JMSException {
        return message.getIntProperty("JMSXDeliveryCount") - 1;
    }

    static void redelivery(Connections connections, String p) throws JMSException {
        Connection closing = connections.open();
        Session session = Talk.clientAcknowledge(closing);
        Queue queue = session.createQueue(p + ".redelivery");
        Talk.send(session, queue, "again");
        Expect.equal("JMSRedelivered at first", false, Talk.next(session.createConsumer(queue)).getJMSRedelivered());
        closing.close();
        Message again = Talk.next(Talk.session(connections.open()).createConsumer(queue));
        Expect.equal("the next receiver's message", "again", Talk.text(again));
        Expect.equal("JMSRedelivered", true, again.getJMSRedelivered());
    }

    static void acknowledge(Connections connections, String p) throws JMSException {
        Session session = Talk.clientAcknowledge(connections.open());
        Queue queue = session.createQueue(p + ".ack");
        List<String> texts = Talk.numbered("m", 5);
        Talk.send(session, queue, texts);
        MessageConsumer consumer = session.createConsumer(queue);
        Expect.equal("the first three", texts.subList(0, 3), Talk.take(consumer, 3));
        session.recover();
        Expect.equal("after recover", texts.subList(0, 4), Talk.take(consumer, 4));
        Message last = Talk.next(consumer);
        Expect.equal("the last", texts.get(4), Talk.text(last));
        last.acknowledge();
        consumer.close();
        Talk.silent("the next receiver", session.createConsumer(queue));
    }

    static void browse(Connections connections, String p) throws JMSException {
        Session session = Talk.session(connections.open());
        Queue queue = session.createQueue(p + ".browse");
        List<String> texts = Talk.numbered("m", 5);
        Talk.send(session, queue, texts);
        Expect.equal("browsed", texts, browsed(session, queue));
        Expect.equal("browsed again", texts, browsed(session, queue));
        Talk.only("a consumer afterwards", session.createConsumer(queue), texts);
    }

    private static List<String> browsed(Session session, Queue queue) throws JMSException {
        QueueBrowser browser = session.createBrowser(queue);
        List<String> texts = new ArrayList<>();
        Enumeration<?> messages = browser.getEnumeration();
        while (messages.hasMoreElements()) {
            texts.add(Talk.text((Message) messages.nextElement()));
        }
        browser.close();
        return texts;
    }

    static void selector(Connections connections, String p) throws JMSException {
        Session session = Talk.session(connections.open());
        Queue queue = session.createQueue(p + ".selected");
        MessageProducer producer = session.createProducer(queue);
        producer.send(coloured(session, "red", 5));
        producer.send(coloured(session, "red", 20));
        producer.send(coloured(session, "blue", 20));
        producer.send(coloured(session, "red", 11));
        MessageConsumer chosen = session.createConsumer(queue, "colour = 'red' AND weight > 10");
        Talk.only("the receiver with a selector", chosen, List.of("red 20", "red 11"));
        chosen.close();
        Talk.only("the one without", session.createConsumer(queue), List.of("red 5", "blue 20"));
    }

    private static Message coloured(Session session, String colour, int weight) throws JMSException {
        TextMessage message = session.createTextMessage(colour + " " + weight);
        message.setStringProperty("colour", colour);
        message.setIntProperty("weight", weight);
        return message;
    }

    /** Qpid JMS parses a selector itself before the broker sees it, unless told not to. */
    static void badSelector(Connections connections, String p) throws JMSException {
        Session checking = Talk.session(connections.open());
        Queue queue = checking.createQueue(p + ".selected");
        try {
            checking.createConsumer(queue, "colour = = 3");
            throw Expect.failure("InvalidSelectorException", "a consumer");
        } catch (InvalidSelectorException e) {
            // as it must be
        }
        Session unchecked = Talk.session(connections.open("jms.validateSelector=false"));
        Talk.refused("the selector", "amqp:invalid-field", () -> unchecked.createConsumer(queue, "colour = = 3"));
    }

    static void exclusive(Connections connections, String p) throws JMSException {
        Session one = Talk.session(connections.open());
        Queue queue = one.createQueue(p + ".exclusive");
        one.createConsumer(queue);
        Session other = Talk.session(connections.open());
        Talk.refused("the second receiver", "amqp:resource-locked", () -> other.createConsumer(queue));
    }

    static void singleActive(Connections connections, String p) throws JMSException {
        Session one = Talk.session(connections.open());
        Queue queue = one.createQueue(p + ".single");
        MessageConsumer first = one.createConsumer(queue);
        MessageConsumer second = Talk.session(connections.open()).createConsumer(queue);
        Talk.send(one, queue, Talk.numbered("m", 5));
        Talk.only("the first", first, Talk.numbered("m", 5));
        Talk.silent("the second, while the first is open,", second);
        first.close();
        Talk.send(one, queue, Talk.numbered("n", 5));
        Talk.only("the second", second, Talk.numbered("n", 5));
    }

    /** The client must not be the one that drops what has expired. */
    static void expiry(Connections connections, String p) throws Exception {
        Session session = Talk.session(connections.open("jms.localMessageExpiry=false"));
        Queue queue = session.createQueue(p + ".expiry");
        MessageProducer producer = session.createProducer(queue);
        producer.send(session.createTextMessage("short"), DeliveryMode.PERSISTENT, Message.DEFAULT_PRIORITY, 200);
        Thread.sleep(600);
        MessageConsumer consumer = session.createConsumer(queue);
        Talk.silent("the receiver after 600 ms", consumer);
        producer.send(session.createTextMessage("lasting"));
        Expect.equal("without ttl", "lasting", Talk.nextText(consumer));
    }

    static void priority(Connections connections, String p) throws JMSException {
        Session session = Talk.session(connections.open());
        Queue queue = session.createQueue(p + ".priority");
        MessageConsumer consumer = session.createConsumer(queue);
        MessageProducer producer = session.createProducer(queue);
        producer.send(session.createTextMessage("7"), DeliveryMode.PERSISTENT, 7, 0);
        Expect.equal("priority", 7, Talk.next(consumer).getJMSPriority());
        producer.send(session.createTextMessage("4"));
        Expect.equal("priority", 4, Talk.next(consumer).getJMSPriority());
    }

    static void large(Connections connections, String p) throws JMSException {
        Session session = Talk.session(connections.open());
        Queue queue = session.createQueue(p + ".large");
        byte[] sent = new byte[20 << 20];
        new Random(20).nextBytes(sent);
        BytesMessage message = session.createBytesMessage();
        message.writeBytes(sent);
        session.createProducer(queue).send(message);
        BytesMessage came = (BytesMessage) session.createConsumer(queue).receive(4 * Talk.SOON_MS);
        Expect.that(came != null, "the message", "none");
        Expect.equal("length", (long) sent.length, came.getBodyLength());
        byte[] received = new byte[sent.length];
        came.readBytes(received);
        Expect.that(Arrays.equals(sent, received), "the same bytes", "others");
    }
}
