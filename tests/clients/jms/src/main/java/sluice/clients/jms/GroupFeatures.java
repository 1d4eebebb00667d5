package sluice.clients.jms;

import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import sluice.clients.Expect;

/** JMSXGroupID and JMSXGroupSeq at queues with `message_groups: sticky`. */
final class GroupFeatures {
    private static final int GROUPS = 20;
    private static final int EACH = 40;
    private static final String FIRST = "JMSXGroupFirstForConsumer";
    private static final long RUN_S = 15;

    private GroupFeatures() {}

    /** Three consumers with the stock prefetch: each group has one of them, in order, and each of them has groups. */
    static void divided(Connections connections, String p) throws Exception {
        Session session = Talk.session(connections.open());
        Queue queue = session.createQueue(p + ".groups.divided");
        Seen seen = new Seen();
        for (int i = 0; i < 3; i++) {
            listen(connections, queue, "consumer " + i, seen);
        }
        sendGroups(session, queue);
        seen.await();
        Expect.equal("consumers with groups", 3, Set.copyOf(seen.owners()).size());
        seen.owned.forEach((group, owners) -> Expect.equal("consumers of " + group, 1, owners.size()));
    }

    /**
     * Consumers come and go while messages come: each message of a group is handled once, after the one
     * before it, and never while another of the group is handled elsewhere.
     */
    static void comeAndGo(Connections connections, String p) throws Exception {
        Session session = Talk.session(connections.open());
        Queue queue = session.createQueue(p + ".groups.moving");
        Seen seen = new Seen();
        listen(connections, queue, "stays", seen);
        Random random = new Random(19);
        // On a busy machine one consumer can have handled everything before a second is connected.
        CountDownLatch others = new CountDownLatch(2);
        Thread sending = new Thread(() -> {
            try {
                sendGroups(session, queue, 1, EACH / 2, 0);
                Expect.that(others.await(RUN_S, TimeUnit.SECONDS), "two other consumers", others.getCount());
                sendGroups(session, queue, EACH / 2 + 1, EACH, 5);
            } catch (JMSException | InterruptedException | RuntimeException fault) {
                seen.wrong(fault.toString());
            }
        });
        sending.start();
        List<MessageConsumer> there = new ArrayList<>();
        for (int turn = 0; seen.left.getCount() > 0 && turn < 200; turn++) {
            if (there.size() == 3 || (!there.isEmpty() && random.nextBoolean())) {
                there.remove(random.nextInt(there.size())).close();
            } else {
                there.add(listen(connections, queue, "turn " + turn, seen));
                others.countDown();
            }
            seen.left.await(30, TimeUnit.MILLISECONDS);
        }
        sending.join();
        seen.await();
        Expect.that(seen.owners().size() > GROUPS, "groups to change hands", seen.owned);
    }

    /** A group stays with a busy consumer, and holds nobody else up. */
    static void busy(Connections connections, String p) throws JMSException {
        Session session = Talk.session(connections.open());
        Queue queue = session.createQueue(p + ".groups.busy");
        MessageConsumer busy = Talk.clientAcknowledge(connections.open("jms.prefetchPolicy.all=1"))
                .createConsumer(queue);
        send(session, queue, "g", 1, "g1");
        Message held = Talk.next(busy);
        MessageConsumer other = Talk.session(connections.open()).createConsumer(queue);
        send(session, queue, "g", 2, "g2");
        send(session, queue, "g", 3, "g3");
        send(session, queue, "h", 1, "h1");
        send(session, queue, null, 0, "none");
        Talk.only("the other consumer", other, List.of("h1", "none"));
        held.acknowledge();
        Expect.equal("the busy one", "g2", Talk.nextText(busy));
        Message last = Talk.next(busy);
        Expect.equal("then", "g3", Talk.text(last));
        last.acknowledge();
        Talk.silent("the other", other);
    }

    /** JMSXGroupSeq -1 ends a group: its next message goes to the consumer with the fewest groups. */
    static void closed(Connections connections, String p) throws JMSException {
        Session session = Talk.session(connections.open());
        Queue queue = session.createQueue(p + ".groups.closed");
        MessageConsumer first = Talk.session(connections.open()).createConsumer(queue);
        send(session, queue, "g", 1, "g1");
        send(session, queue, "h", 1, "h1");
        Talk.only("the first consumer", first, List.of("g1", "h1"));
        MessageConsumer second = Talk.session(connections.open()).createConsumer(queue);
        send(session, queue, "g", 2, "g2");
        Expect.equal("the first, of its group", "g2", Talk.nextText(first));
        send(session, queue, "g", -1, "last");
        Message last = Talk.next(first);
        Expect.equal("the last of the group", "last", Talk.text(last));
        Expect.equal("JMSXGroupSeq of the last", -1, last.getIntProperty("JMSXGroupSeq"));
        Talk.silent("the first", first); // an answer to its acknowledgement isn't awaited by the client
        send(session, queue, "g", 1, "anew");
        Expect.equal("the second, of the group anew", "anew", Talk.nextText(second));
        send(session, queue, "h", 2, "h2");
        Expect.equal("the first, of its other group", "h2", Talk.nextText(first));
        send(session, queue, "g", 2, "anew 2");
        Expect.equal("the second, of the group", "anew 2", Talk.nextText(second));
        Talk.silent("the first", first);
    }

    /** `group_first_key` marks the first message of a group that a consumer is sent. */
    static void first(Connections connections, String p) throws JMSException {
        Session session = Talk.session(connections.open());
        Queue queue = session.createQueue(p + ".groups.marked");
        MessageConsumer one = Talk.session(connections.open()).createConsumer(queue);
        send(session, queue, "g", 1, "g1");
        send(session, queue, "g", 2, "g2");
        marked(one, "g1", true);
        marked(one, "g2", false);
        one.close();
        MessageConsumer other = Talk.session(connections.open()).createConsumer(queue);
        send(session, queue, "g", 3, "g3");
        send(session, queue, "g", 4, "g4");
        marked(other, "g3", true);
        marked(other, "g4", false);
    }

    /** A rollback: the group's messages come again to its consumer, before the rest of the group. */
    static void rolledBack(Connections connections, String p) throws JMSException {
        Session session = Talk.session(connections.open());
        Queue queue = session.createQueue(p + ".groups.back");
        Session taking = TransactionFeatures.transacted(connections.open("jms.prefetchPolicy.all=2"));
        MessageConsumer owner = taking.createConsumer(queue);
        send(session, queue, "g", 1, "g1");
        Expect.equal("first", "g1", Talk.nextText(owner));
        MessageConsumer other = Talk.session(connections.open()).createConsumer(queue);
        for (int i = 2; i <= 6; i++) {
            send(session, queue, "g", i, "g" + i);
        }
        Expect.equal("then", "g2", Talk.nextText(owner));
        taking.rollback();
        for (int i = 1; i <= 6; i++) {
            Message came = Talk.next(owner);
            Expect.equal("again", "g" + i, Talk.text(came));
            Expect.equal("JMSXDeliveryCount of g" + i, i <= 2 ? 2 : 1, came.getIntProperty("JMSXDeliveryCount"));
        }
        taking.commit();
        Talk.silent("the other", other);
    }

    /** In transactions of the sender too: a group becomes visible at once, in its order. */
    static void transacted(Connections connections, String p) throws Exception {
        Session session = TransactionFeatures.transacted(connections.open());
        Queue queue = session.createQueue(p + ".groups.transacted");
        Seen seen = new Seen();
        for (String name : List.of("one", "another", "third")) { // no divisor of the number of groups
            listen(connections, queue, name, seen);
        }
        sendGroups(session, queue);
        session.rollback();
        sendGroups(session, queue);
        session.commit();
        seen.await();
        Expect.equal("consumers with groups", Set.of("one", "another", "third"), Set.copyOf(seen.owners()));
        seen.owned.forEach((group, owners) -> Expect.equal("consumers of " + group, 1, owners.size()));
    }

    private static void marked(MessageConsumer consumer, String text, boolean first) throws JMSException {
        Message came = Talk.next(consumer);
        Expect.equal("next", text, Talk.text(came));
        Expect.equal(FIRST + " of " + text, first, came.propertyExists(FIRST) && came.getBooleanProperty(FIRST));
    }

    private static void send(Session session, Queue queue, String group, int sequence, String text)
            throws JMSException {
        MessageProducer producer = session.createProducer(queue);
        producer.send(grouped(session, group, sequence, text));
        producer.close();
    }

    /** All groups by turns. */
    private static void sendGroups(Session session, Queue queue) throws JMSException, InterruptedException {
        sendGroups(session, queue, 1, EACH, 0);
    }

    /** These numbers of all groups by turns, with a pause after each number. */
    private static void sendGroups(Session session, Queue queue, int from, int to, long pauseMs)
            throws JMSException, InterruptedException {
        MessageProducer producer = session.createProducer(queue);
        for (int number = from; number <= to; number++) {
            for (int group = 0; group < GROUPS; group++) {
                producer.send(grouped(session, "group " + group, number, String.valueOf(number)));
            }
            Thread.sleep(pauseMs);
        }
        producer.close();
    }

    private static Message grouped(Session session, String group, int sequence, String text) throws JMSException {
        Message message = session.createTextMessage(text);
        if (group != null) {
            message.setStringProperty("JMSXGroupID", group);
            message.setIntProperty("JMSXGroupSeq", sequence);
        }
        return message;
    }

    private static MessageConsumer listen(Connections connections, Queue queue, String name, Seen seen)
            throws JMSException {
        MessageConsumer consumer = Talk.session(connections.open()).createConsumer(queue);
        consumer.setMessageListener(message -> seen.handle(name, message));
        return consumer;
    }

    /** What listeners have handled: group by group, in order and one at a time. */
    private static final class Seen {
        final CountDownLatch left = new CountDownLatch(GROUPS * EACH);
        final Map<String, Set<String>> owned = new ConcurrentHashMap<>();
        private final Map<String, Integer> last = new HashMap<>();
        private final Map<String, AtomicInteger> inside = new ConcurrentHashMap<>();
        private final List<String> faults = Collections.synchronizedList(new ArrayList<>());

        void handle(String consumer, Message message) {
            try {
                String group = message.getStringProperty("JMSXGroupID");
                int number = message.getIntProperty("JMSXGroupSeq");
                AtomicInteger here = inside.computeIfAbsent(group, each -> new AtomicInteger());
                if (here.incrementAndGet() > 1) {
                    wrong(group + " is handled by two at once, " + consumer + " is the second");
                }
                Thread.sleep(number % 4); // the work of some is longer: they could be overtaken
                note(consumer, group, number);
                here.decrementAndGet();
            } catch (JMSException | InterruptedException fault) {
                wrong(fault.toString());
            }
            left.countDown();
        }

        private synchronized void note(String consumer, String group, int number) {
            int before = last.getOrDefault(group, 0);
            if (number != before + 1) {
                wrong(group + ": " + number + " comes after " + before + " at " + consumer);
            }
            last.put(group, number);
            owned.computeIfAbsent(group, each -> Collections.synchronizedSet(new HashSet<>())).add(consumer);
        }

        void wrong(String fault) {
            faults.add(fault);
        }

        /** Each group's owners, one after another. */
        List<String> owners() {
            return owned.values().stream().flatMap(Set::stream).toList();
        }

        void await() throws InterruptedException {
            boolean done = left.await(RUN_S, TimeUnit.SECONDS);
            Expect.equal("faults", List.of(), List.copyOf(faults));
            Expect.that(done, "every message to be handled", left.getCount() + " are missing");
        }
    }
}
