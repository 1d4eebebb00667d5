package sluice.clients.jms;

import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Random;
import sluice.clients.Expect;

/** `setPriority` at queues with `priority`, and the part that the client's prefetch has in it. */
final class PriorityFeatures {
    private static final int BACKLOG = 2_500;
    private static final int PREFETCH = 1_000; // the stock one of Qpid JMS, and consumer_flow_limit
    private static final String HUNDRED = "jms.prefetchPolicy.all=100";
    private static final long WORK_MS = 5; // of a slow application on each message
    private static final String PULL = "jms.prefetchPolicy.all=0";

    private PriorityFeatures() {}

    /** A backlog of all ten, sent in any order, comes from the highest to the lowest, each in its order of sending. */
    static void order(Connections connections, String p) throws JMSException {
        Session session = Talk.session(connections.open());
        Queue queue = session.createQueue(p + ".strict.order");
        List<Integer> priorities = new ArrayList<>();
        for (int i = 0; i < 200; i++) {
            priorities.add(i % 10);
        }
        Collections.shuffle(priorities, new Random(19));
        List<List<String>> levels = new ArrayList<>();
        for (int i = 0; i < 10; i++) {
            levels.add(new ArrayList<>());
        }
        MessageProducer producer = session.createProducer(queue);
        for (int i = 0; i < priorities.size(); i++) {
            levels.get(priorities.get(i)).add("m" + i);
            producer.setPriority(priorities.get(i));
            producer.send(session.createTextMessage("m" + i));
        }
        MessageConsumer consumer = session.createConsumer(queue);
        for (int priority = 9; priority >= 0; priority--) {
            for (String text : levels.get(priority)) {
                Message came = Talk.next(consumer);
                Expect.equal("next of priority " + priority, text, Talk.text(came));
                Expect.equal("JMSPriority of " + text, priority, came.getJMSPriority());
            }
        }
        Talk.silent("then", consumer);
    }

    /** A consumer without a prefetch has the alarm next, however long the backlog. */
    static void pulled(Connections connections, String p) throws Exception {
        Expect.equal("messages before the alarm", 0, before(connections, p + ".strict.pulled", 0, PULL));
    }

    /** With a prefetch of one the alarm stands behind that one. */
    static void one(Connections connections, String p) throws Exception {
        int before = before(connections, p + ".strict.one", 0, "jms.prefetchPolicy.all=1");
        Expect.that(before <= 1, "at most one message before the alarm", before);
    }

    /** The stock prefetch: what the client has taken ahead comes before the alarm, and nothing else does. */
    static void prefetched(Connections connections, String p) throws Exception {
        int before = before(connections, p + ".strict.prefetched", 0);
        Expect.that(before > PREFETCH / 10, "an alarm behind what the client has prefetched", before);
        Expect.that(before <= PREFETCH, "no more than the prefetch before the alarm", before);
    }

    /** A slow application and a prefetch of 100: the alarm is behind all of it. */
    static void slow(Connections connections, String p) throws Exception {
        int before = before(connections, p + ".strict.slow", WORK_MS, HUNDRED);
        Expect.equal("messages before the alarm", 90, before);
    }

    /** The same where the client sorts what it has: the alarm waits for credit alone, renewed below 70 of 100. */
    static void sorted(Connections connections, String p) throws Exception {
        int before = before(connections, p + ".strict.sorted", WORK_MS, HUNDRED, "jms.localMessagePriority=true");
        Expect.that(before <= 60, "the alarm soon after the next credit", before);
    }

    /** A consumer_flow_limit of 10 at the queue bounds what a stock client takes ahead. */
    static void windowed(Connections connections, String p) throws Exception {
        int before = before(connections, p + ".strict.windowed", WORK_MS);
        Expect.that(before <= 10, "at most the window before the alarm", before);
    }

    /** In a transaction it overtakes from the commit on. */
    static void transacted(Connections connections, String p) throws JMSException {
        Session session = TransactionFeatures.transacted(connections.open());
        Queue queue = session.createQueue(p + ".strict.transacted");
        bulk(Talk.session(connections.open()), queue, 20);
        MessageConsumer consumer = Talk.session(connections.open(PULL)).createConsumer(queue);
        alarm(session, queue);
        Expect.equal("before the commit", "bulk0", Talk.nextText(consumer));
        session.commit();
        Expect.equal("after the commit", "alarm", Talk.nextText(consumer));
        Expect.equal("then", "bulk1", Talk.nextText(consumer));
    }

    /** After a rollback the order is that of the priorities again. */
    static void rolledBack(Connections connections, String p) throws JMSException {
        Session session = TransactionFeatures.transacted(connections.open(PULL));
        Queue queue = session.createQueue(p + ".strict.back");
        Session other = Talk.session(connections.open());
        bulk(other, queue, 5);
        MessageConsumer consumer = session.createConsumer(queue);
        Expect.equal("taken", Talk.numbered("bulk", 3), Talk.take(consumer, 3));
        alarm(other, queue);
        session.rollback();
        Expect.equal("first again", "alarm", Talk.nextText(consumer));
        Expect.equal("then", Talk.numbered("bulk", 5), Talk.take(consumer, 5));
        session.commit();
        Talk.silent("then", consumer);
    }

    /** `fair`: a low message is not the first though it was sent first, and comes within 216. */
    static void fair(Connections connections, String p) throws JMSException {
        Session session = Talk.session(connections.open());
        Queue queue = session.createQueue(p + ".fair.queue");
        MessageProducer producer = session.createProducer(queue);
        producer.setPriority(0);
        producer.send(session.createTextMessage("low"));
        producer.setPriority(9);
        for (String text : Talk.numbered("high", 400)) {
            producer.send(session.createTextMessage(text));
        }
        List<String> came = Talk.take(session.createConsumer(queue), 401);
        Expect.equal("all", 401, came.size());
        int low = came.indexOf("low");
        Expect.that(low > 0 && low < 216, "the low one after high ones and among the first 216", low);
        came.remove("low");
        Expect.equal("the others in order", Talk.numbered("high", 400), came);
    }

    /** How many messages come before an alarm that is sent when ten of a long backlog are consumed. */
    private static int before(Connections connections, String address, long workMs, String... options)
            throws Exception {
        Session session = Talk.session(connections.open());
        Queue queue = session.createQueue(address);
        bulk(session, queue, BACKLOG);
        MessageConsumer consumer = Talk.session(connections.open(options)).createConsumer(queue);
        Expect.equal("the first ten", Talk.numbered("bulk", 10), Talk.take(consumer, 10));
        alarm(session, queue);
        int before = 0;
        List<String> low = new ArrayList<>();
        for (String text = Talk.nextText(consumer); !text.equals("alarm"); text = Talk.nextText(consumer)) {
            low.add(text);
            before++;
            Thread.sleep(workMs);
        }
        Expect.equal("before the alarm", Talk.numbered("bulk", BACKLOG).subList(10, 10 + before), low);
        return before;
    }

    private static void bulk(Session session, Queue queue, int count) throws JMSException {
        Talk.sendMany(session, queue, Talk.numbered("bulk", count));
    }

    private static void alarm(Session session, Queue queue) throws JMSException {
        MessageProducer producer = session.createProducer(queue);
        producer.setPriority(9);
        producer.send(session.createTextMessage("alarm"));
        producer.close();
    }
}
