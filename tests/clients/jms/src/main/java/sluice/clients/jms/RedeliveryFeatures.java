package sluice.clients.jms;

import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import sluice.clients.Expect;

/** What comes again, when, and what JMSXDeliveryCount says of it. */
final class RedeliveryFeatures {
    private static final int MODIFIED_FAILED = 4; // JMS_AMQP_ACK_TYPE of Qpid JMS
    private static final long DELAY_MS = 800; // redelivery_delay of .later.
    private static final List<String> FIVE = Talk.numbered("m", 5);

    private RedeliveryFeatures() {}

    /** `recover()`: the client delivers again what isn't acknowledged, in order; what is acknowledged stays away. */
    static void recover(Connections connections, String p) throws JMSException {
        Session session = Talk.clientAcknowledge(connections.open());
        Queue queue = session.createQueue(p + ".again.recover");
        Talk.send(session, queue, FIVE);
        MessageConsumer consumer = session.createConsumer(queue);
        counted(consumer, "m0", 1).acknowledge();
        for (int attempt = 1; attempt <= 3; attempt++) {
            counted(consumer, "m1", attempt);
            counted(consumer, "m2", attempt);
            session.recover();
        }
        counted(consumer, "m1", 4);
        counted(consumer, "m2", 4);
        counted(consumer, "m3", 1);
        counted(consumer, "m4", 1).acknowledge();
        session.close();
        Talk.silent("then", session(connections).createConsumer(queue));
    }

    /** The broker doesn't hear of `recover()`: redelivery_delay is no part of it, and max_delivery_count neither. */
    static void recoverWithDelay(Connections connections, String p) throws JMSException {
        Session session = Talk.clientAcknowledge(connections.open());
        Queue queue = session.createQueue(p + ".later.recover");
        Talk.send(session, queue, FIVE);
        MessageConsumer consumer = session.createConsumer(queue);
        for (int attempt = 1; attempt <= 6; attempt++) {
            long began = System.nanoTime();
            counted(consumer, "m0", attempt);
            if (attempt > 1) {
                Expect.that(millis(began) < DELAY_MS, "it at once", millis(began) + " ms");
            }
            session.recover();
        }
        for (String text : FIVE) {
            counted(consumer, text, text.equals("m0") ? 7 : 1).acknowledge();
        }
        Queue dead = session.createQueue(p + ".again.dead");
        session.close();
        Talk.silent("then", session(connections).createConsumer(queue));
        Talk.silent("the dead-letter queue", session(connections).createConsumer(dead));
    }

    /** `rollback()`: what was taken waits for redelivery_delay, the others pass it. */
    static void rollbackWithDelay(Connections connections, String p) throws JMSException {
        Session session = TransactionFeatures.transacted(connections.open());
        Queue queue = session.createQueue(p + ".later.rollback");
        Talk.send(session(connections), queue, FIVE);
        MessageConsumer consumer = session.createConsumer(queue);
        counted(consumer, "m0", 1);
        counted(consumer, "m1", 1);
        long began = System.nanoTime();
        session.rollback();
        counted(consumer, "m2", 1);
        counted(consumer, "m3", 1);
        counted(consumer, "m4", 1);
        later(consumer, "m0", 2, began, DELAY_MS);
        counted(consumer, "m1", 2);
        session.commit();
        Talk.silent("then", consumer);
    }

    /** redelivery_multiplier lengthens each wait, and after max_delivery_count the message is a dead letter. */
    static void multiplied(Connections connections, String p) throws JMSException {
        Session session = TransactionFeatures.transacted(connections.open());
        Queue queue = session.createQueue(p + ".later.failing");
        MessageConsumer dead = session(connections).createConsumer(session.createQueue(p + ".again.dead"));
        Talk.send(session(connections), queue, "bad");
        MessageConsumer consumer = session.createConsumer(queue);
        counted(consumer, "bad", 1);
        long began = System.nanoTime();
        session.rollback();
        later(consumer, "bad", 2, began, DELAY_MS);
        began = System.nanoTime();
        session.rollback();
        later(consumer, "bad", 3, began, 2 * DELAY_MS);
        session.rollback();
        Talk.only("the dead-letter queue", dead, List.of("bad"));
        Talk.silent("the queue", consumer);
    }

    /** The client's own `modified`, delivery-failed: it waits and counts. */
    static void modified(Connections connections, String p) throws JMSException {
        Session session = Talk.clientAcknowledge(connections.open());
        Queue queue = session.createQueue(p + ".later.modified");
        Talk.send(session(connections), queue, "m0", "m1");
        MessageConsumer consumer = session.createConsumer(queue);
        Message failed = counted(consumer, "m0", 1);
        failed.setIntProperty("JMS_AMQP_ACK_TYPE", MODIFIED_FAILED);
        long began = System.nanoTime();
        failed.acknowledge();
        counted(consumer, "m1", 1).acknowledge();
        later(consumer, "m0", 2, began, DELAY_MS).acknowledge();
        Talk.silent("then", consumer);
    }

    /** A listener's exception, AUTO_ACKNOWLEDGE: released by the client, so it comes again at once and counts nothing. */
    static void listener(Connections connections, String p) throws Exception {
        Session session = session(connections);
        Queue queue = session.createQueue(p + ".later.listener");
        Talk.send(session, queue, "m0");
        List<String> came = Collections.synchronizedList(new ArrayList<>());
        CountDownLatch times = new CountDownLatch(4);
        long began = System.nanoTime();
        session(connections).createConsumer(queue).setMessageListener(message -> {
            try {
                came.add(Talk.text(message) + " " + message.getIntProperty("JMSXDeliveryCount"));
            } catch (JMSException fault) {
                came.add(fault.toString());
            }
            times.countDown();
            if (times.getCount() > 0) {
                throw new IllegalStateException("an application's fault, of the test");
            }
        });
        Expect.that(times.await(Talk.SOON_MS, TimeUnit.MILLISECONDS), "four deliveries", came);
        Expect.that(millis(began) < 3 * DELAY_MS, "them without a wait", millis(began) + " ms");
        Expect.equal("deliveries", List.of("m0 1", "m0 1", "m0 1", "m0 1"), List.copyOf(came));
    }

    /**
     * Transacted sessions that end with a message taken: that one fails and waits. Prefetched ones come at once and
     * read 2 from then on, for they may have been seen; however often this happens they don't fail by it.
     */
    static void closed(Connections connections, String p) throws JMSException {
        Queue queue = session(connections).createQueue(p + ".later.closed");
        Talk.send(session(connections), queue, FIVE);
        for (int i = 0; i < 3; i++) {
            Session session = TransactionFeatures.transacted(connections.open());
            counted(session.createConsumer(queue), "m" + i, i == 0 ? 1 : 2);
            session.close();
        }
        long began = System.nanoTime(); // the last of the three has just failed
        MessageConsumer consumer = session(connections).createConsumer(queue);
        List<String> came = new ArrayList<>();
        for (int i = 0; i < 5; i++) {
            Message message = Talk.next(consumer);
            came.add(Talk.text(message));
            int count = message.getIntProperty("JMSXDeliveryCount");
            Expect.equal("JMSXDeliveryCount of " + Talk.text(message), came.get(i).matches("m[12]") ? 3 : 2, count);
        }
        Expect.that(millis(began) >= DELAY_MS - 100, "the last one to wait", millis(began) + " ms");
        Expect.equal("messages that didn't fail, in order", List.of("m3", "m4"), came.subList(0, 2));
        Expect.equal("the others, when they are due", List.of("m0", "m1", "m2"), came.subList(2, 5));
        Talk.silent("then", consumer);
    }

    /** Without a redelivery_delay what failed is back in its place, before the rest. */
    static void inPlace(Connections connections, String p) throws JMSException {
        Session session = TransactionFeatures.transacted(connections.open());
        Queue queue = session.createQueue(p + ".again.place");
        Talk.send(session(connections), queue, FIVE);
        MessageConsumer consumer = session.createConsumer(queue);
        for (int attempt = 1; attempt <= 4; attempt++) {
            counted(consumer, "m0", attempt);
            counted(consumer, "m1", attempt);
            session.rollback();
        }
        counted(consumer, "m0", 5);
        session.commit();
        counted(consumer, "m1", 5);
        counted(consumer, "m2", 1);
        session.close();
        MessageConsumer next = session(connections).createConsumer(queue);
        counted(next, "m1", 6);
        counted(next, "m2", 2);
        counted(next, "m3", 2); // was prefetched
    }

    private static Session session(Connections connections) throws JMSException {
        return Talk.session(connections.open());
    }

    /** The next message, not before its delay is over, and soon after. */
    private static Message later(MessageConsumer consumer, String text, int delivery, long began, long delay)
            throws JMSException {
        Message came = counted(consumer, text, delivery);
        long passed = millis(began);
        Expect.that(passed >= delay, text + " after " + delay + " ms", passed + " ms");
        Expect.that(passed < delay + 3_000, text + " soon after " + delay + " ms", passed + " ms");
        return came;
    }

    private static long millis(long began) {
        return TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - began);
    }

    private static Message counted(MessageConsumer consumer, String text, int delivery) throws JMSException {
        return Talk.counted(consumer, text, delivery);
    }
}
