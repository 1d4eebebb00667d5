package sluice.clients.jms;

import jakarta.jms.CompletionListener;
import jakarta.jms.Destination;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import jakarta.jms.Topic;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import sluice.clients.Expect;

/** `setDeliveryDelay`: a message comes when it is due, never before. */
final class DelayFeatures {
    /** A message that is later than this has been forgotten, however busy the machine is. */
    private static final long LATEST_MS = 3_000;

    private DelayFeatures() {}

    /** Delays in any order; messages come by the time they are due, and those due at once in the order of sending. */
    static void neverEarly(Connections connections, String p) throws JMSException {
        Session session = Talk.session(connections.open());
        Queue queue = session.createQueue(p + ".delay.order");
        MessageConsumer consumer = Talk.session(connections.open()).createConsumer(queue);
        List<Long> delays = new ArrayList<>();
        for (long delay = 0; delay <= 2_000; delay += 100) {
            delays.add(delay);
        }
        Collections.reverse(delays);
        arrive(consumer, sent(session, queue, delays));
    }

    /** A message without a delay, sent after a delayed one. */
    static void overtaken(Connections connections, String p) throws JMSException {
        Session session = Talk.session(connections.open());
        Queue queue = session.createQueue(p + ".delay.overtaken");
        MessageConsumer consumer = Talk.session(connections.open()).createConsumer(queue);
        MessageProducer producer = session.createProducer(queue);
        producer.setDeliveryDelay(1_000);
        Message waiting = send(session, producer, "later");
        producer.setDeliveryDelay(0);
        producer.send(session.createTextMessage("now"));
        Expect.equal("first", "now", Talk.nextText(consumer));
        Expect.that(System.currentTimeMillis() < waiting.getJMSDeliveryTime(), "it before the other is due", "late");
        due(consumer, "later", waiting.getJMSDeliveryTime());
    }

    /** The time runs from the send; a commit after it makes the message available at once. */
    static void transacted(Connections connections, String p) throws Exception {
        Session session = TransactionFeatures.transacted(connections.open());
        Queue queue = session.createQueue(p + ".delay.transacted");
        MessageConsumer consumer = Talk.session(connections.open()).createConsumer(queue);
        MessageProducer producer = session.createProducer(queue);
        producer.setDeliveryDelay(1_000);
        send(session, producer, "rolled back");
        session.rollback();
        Message early = send(session, producer, "committed before");
        session.commit();
        due(consumer, "committed before", early.getJMSDeliveryTime());
        producer.setDeliveryDelay(300);
        Message late = send(session, producer, "committed after");
        Talk.silent("a consumer before the commit", consumer); // until it would be due
        Expect.that(System.currentTimeMillis() > late.getJMSDeliveryTime(), "the time to be over", "it isn't");
        session.commit();
        Expect.equal("after the commit", "committed after", Talk.nextText(consumer));
        Talk.silent("then", consumer);
    }

    /** Every subscription has its own copy waiting. */
    static void topic(Connections connections, String p) throws JMSException {
        Session session = Talk.session(connections.open());
        Topic topic = session.createTopic(p + ".news.delayed");
        MessageConsumer one = session.createConsumer(topic);
        MessageConsumer other = Talk.session(connections.open()).createConsumer(topic);
        Map<String, Long> sent = sent(Talk.session(connections.open()), topic, List.of(800L, 400L));
        arrive(one, sent);
        arrive(other, sent);
    }

    /** The broker confirms a message when it has it, not when it is due. */
    static void confirmed(Connections connections, String p) throws Exception {
        Session session = Talk.session(connections.open());
        Queue queue = session.createQueue(p + ".delay.confirmed");
        MessageProducer producer = session.createProducer(queue);
        producer.setDeliveryDelay(60_000);
        CompletableFuture<Message> told = new CompletableFuture<>();
        producer.send(session.createTextMessage("in a minute"), new CompletionListener() {
            @Override
            public void onCompletion(Message message) {
                told.complete(message);
            }

            @Override
            public void onException(Message message, Exception fault) {
                told.completeExceptionally(fault);
            }
        });
        Message message = told.get(Talk.SOON_MS, TimeUnit.MILLISECONDS);
        Expect.that(message.getJMSDeliveryTime() > System.currentTimeMillis() + 30_000, "a time to come",
                message.getJMSDeliveryTime());
        Talk.silent("a consumer", session.createConsumer(queue));
    }

    /** Time to live runs from the send: a message that expires before it is due never comes. */
    static void expired(Connections connections, String p) throws JMSException {
        Session session = Talk.session(connections.open("jms.localMessageExpiry=false"));
        Queue queue = session.createQueue(p + ".delay.expired");
        MessageProducer producer = session.createProducer(queue);
        producer.setDeliveryDelay(600);
        producer.setTimeToLive(200);
        producer.send(session.createTextMessage("dead before"));
        producer.setTimeToLive(60_000);
        Message lives = send(session, producer, "lives");
        due(session.createConsumer(queue), "lives", lives.getJMSDeliveryTime());
    }

    /** A consumer that asks for each message, and waits before any is due. */
    static void pulled(Connections connections, String p) throws JMSException {
        Session session = Talk.session(connections.open());
        Queue queue = session.createQueue(p + ".delay.pulled");
        MessageConsumer pulling = Talk.session(connections.open("jms.prefetchPolicy.all=0")).createConsumer(queue);
        Map<String, Long> sent = sent(session, queue, List.of(300L, 600L, 900L));
        arrive(pulling, sent);
    }

    private static Message send(Session session, MessageProducer producer, String text) throws JMSException {
        Message message = session.createTextMessage(text);
        producer.send(message);
        return message;
    }

    /** The texts and when each is due, by the sender's clock, in the order in which they must come. */
    private static Map<String, Long> sent(Session session, Destination to, List<Long> delays) throws JMSException {
        MessageProducer producer = session.createProducer(to);
        Map<String, Long> due = new LinkedHashMap<>();
        for (long delay : delays) {
            long before = System.currentTimeMillis();
            producer.setDeliveryDelay(delay);
            String text = "after " + delay + " ms";
            Message message = send(session, producer, text);
            due.put(text, message.getJMSDeliveryTime());
            Expect.that(message.getJMSDeliveryTime() >= before + delay, "a time from the send on", text);
        }
        Map<String, Long> ordered = new LinkedHashMap<>();
        due.entrySet().stream()
                .sorted(Comparator.comparing(Map.Entry::getValue))
                .forEach(each -> ordered.put(each.getKey(), each.getValue()));
        return ordered;
    }

    private static void arrive(MessageConsumer consumer, Map<String, Long> sent) throws JMSException {
        for (Map.Entry<String, Long> each : sent.entrySet()) {
            due(consumer, each.getKey(), each.getValue());
        }
        Talk.silent("after all", consumer);
    }

    /** The next message has this text, says when it was due, and comes neither before nor long after. */
    private static void due(MessageConsumer consumer, String text, long time) throws JMSException {
        Message came = Talk.next(consumer);
        long late = System.currentTimeMillis() - time;
        Expect.equal("next", text, Talk.text(came));
        Expect.that(late >= 0, text + " not before it is due", -late + " ms before");
        Expect.that(late < LATEST_MS, text + " when it is due", late + " ms after");
        // A message without a delay carries no time of delivery.
        if (!text.equals("after 0 ms")) {
            Expect.equal("JMSDeliveryTime of " + text, time, came.getJMSDeliveryTime());
        }
    }
}
