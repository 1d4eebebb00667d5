package sluice.clients.jms;

import jakarta.jms.BytesMessage;
import jakarta.jms.CompletionListener;
import jakarta.jms.Connection;
import jakarta.jms.DeliveryMode;
import jakarta.jms.IllegalStateException;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import jakarta.jms.TemporaryQueue;
import jakarta.jms.TextMessage;
import jakarta.jms.Topic;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import sluice.clients.Expect;

/** Transacted sessions: what is sent and received counts with the commit, or never. */
final class TransactionFeatures {
    private static final List<String> TEN = Talk.numbered("m", 10);

    private TransactionFeatures() {}

    static void commit(Connections connections, String p) throws JMSException {
        Session session = transacted(connections.open());
        Session other = Talk.session(connections.open());
        Queue queue = session.createQueue(p + ".tx.commit");
        Talk.send(session, queue, TEN);
        MessageConsumer consumer = other.createConsumer(queue);
        Talk.silent("a consumer before the commit", consumer);
        session.commit();
        Talk.only("a consumer after the commit", consumer, TEN);
        consumer.close();

        Talk.send(other, queue, TEN);
        MessageConsumer taking = session.createConsumer(queue);
        Expect.equal("taken in the transaction", TEN, Talk.take(taking, 10));
        session.commit();
        taking.close();
        Talk.silent("a consumer after the commit of what was taken", other.createConsumer(queue));
    }

    static void rollback(Connections connections, String p) throws JMSException {
        Session session = transacted(connections.open());
        Session other = Talk.session(connections.open());
        Queue queue = session.createQueue(p + ".tx.rollback");
        Talk.send(session, queue, TEN);
        session.rollback();
        MessageConsumer none = other.createConsumer(queue);
        Talk.silent("a consumer after the rollback", none);
        none.close();

        Talk.send(other, queue, TEN);
        MessageConsumer taking = session.createConsumer(queue);
        for (int i = 0; i < 5; i++) {
            Talk.counted(taking, "m" + i, 1);
        }
        session.rollback();
        for (int i = 0; i < 5; i++) {
            Talk.counted(taking, "m" + i, 2);
        }
        Talk.counted(taking, "m5", 1);
        session.rollback();
        for (int i = 0; i < 5; i++) {
            Talk.counted(taking, "m" + i, 3);
        }
        Talk.counted(taking, "m5", 2);
        for (int i = 6; i < 10; i++) {
            Talk.counted(taking, "m" + i, 1);
        }
        session.commit();
        taking.close();
        Talk.silent("a consumer at last", other.createConsumer(queue));
    }

    /** Several producers and consumers of one session, over two queues. */
    static void several(Connections connections, String p) throws JMSException {
        Session session = transacted(connections.open("jms.prefetchPolicy.all=5"));
        Session other = Talk.session(connections.open());
        Queue from1 = session.createQueue(p + ".tx.from1");
        Queue from2 = session.createQueue(p + ".tx.from2");
        Queue to1 = session.createQueue(p + ".tx.to1");
        Queue to2 = session.createQueue(p + ".tx.to2");
        Talk.send(other, from1, TEN);
        Talk.send(other, from2, TEN);
        MessageConsumer one = session.createConsumer(from1);
        MessageConsumer two = session.createConsumer(from2);
        MessageProducer first = session.createProducer(to1);
        MessageProducer second = session.createProducer(to2);
        for (int attempt = 0; attempt < 2; attempt++) {
            for (int i = 0; i < 10; i++) {
                first.send(session.createTextMessage("1 " + Talk.nextText(one)));
                second.send(session.createTextMessage("2 " + Talk.nextText(two)));
            }
            if (attempt == 0) {
                session.rollback();
            }
        }
        Talk.silent("a consumer before the commit", other.createConsumer(to1));
        session.commit();
        MessageConsumer came = other.createConsumer(to2);
        Talk.only("the second queue", came, TEN.stream().map(each -> "2 " + each).toList());
        Talk.silent("the first again", one);
        Talk.silent("the second again", two);
    }

    /** Links that are closed before the transaction ends. */
    static void closedBefore(Connections connections, String p) throws JMSException {
        Session session = transacted(connections.open());
        Session other = Talk.session(connections.open());
        Queue from = session.createQueue(p + ".tx.closed.from");
        Queue to = session.createQueue(p + ".tx.closed.to");
        Talk.send(other, from, TEN);
        move(session, from, to, 5);
        session.rollback();
        MessageConsumer came = other.createConsumer(to);
        Talk.silent("after a rollback", came);
        move(session, from, to, 5);
        Talk.silent("before a commit", came);
        session.commit();
        Talk.only("after the commit", came, TEN.subList(0, 5));
        Talk.only("what was left", other.createConsumer(from), TEN.subList(5, 10));
    }

    private static void move(Session session, Queue from, Queue to, int count) throws JMSException {
        MessageConsumer consumer = session.createConsumer(from);
        List<String> taken = Talk.take(consumer, count);
        Expect.equal("taken", TEN.subList(0, count), taken);
        consumer.close();
        Talk.send(session, to, taken); // closes its producer
    }

    /** Two sessions of one connection: each has its own transaction. */
    static void twoSessions(Connections connections, String p) throws JMSException {
        Connection connection = connections.open();
        Session one = transacted(connection);
        Session two = transacted(connection);
        Session plain = Talk.session(connection);
        Queue queue = one.createQueue(p + ".tx.two");
        Talk.send(one, queue, "one");
        Talk.send(two, queue, "two");
        Talk.send(plain, queue, "plain");
        one.rollback();
        MessageConsumer consumer = Talk.session(connections.open()).createConsumer(queue);
        Talk.only("the untransacted one", consumer, List.of("plain"));
        two.commit();
        Talk.only("the committed one", consumer, List.of("two"));
        Talk.send(one, queue, "again");
        one.commit();
        Talk.only("the next transaction", consumer, List.of("again"));
    }

    /** A session, then a connection that closes with an open transaction: rolled back. */
    static void closedSession(Connections connections, String p) throws JMSException {
        Connection closing = connections.open();
        Session other = Talk.session(connections.open());
        Queue queue = other.createQueue(p + ".tx.session");
        Talk.send(other, queue, "first");
        for (int attempt = 1; attempt <= 2; attempt++) {
            Session session = transacted(closing);
            Talk.send(session, queue, "never");
            Talk.counted(session.createConsumer(queue), "first", attempt);
            if (attempt == 1) {
                session.close();
            } else {
                closing.close();
            }
        }
        MessageConsumer consumer = other.createConsumer(queue);
        Talk.counted(consumer, "first", 3);
        Talk.silent("then", consumer);
    }

    /** More than the sender's credit, and more than the consumer's window of 1,000, in one transaction each. */
    static void larger(Connections connections, String p) throws JMSException {
        int count = 5000;
        Session session = transacted(connections.open("jms.forceAsyncSend=true"));
        Queue queue = session.createQueue(p + ".tx.larger");
        List<String> texts = Talk.numbered("m", count);
        Talk.send(session, queue, texts);
        session.commit();
        MessageConsumer consumer = session.createConsumer(queue);
        Expect.equal("taken", texts, Talk.take(consumer, count));
        session.rollback();
        Expect.equal("taken again", texts, Talk.take(consumer, count));
        session.commit();
        consumer.close();
        Talk.silent("then", Talk.session(connections.open()).createConsumer(queue));
    }

    static void topics(Connections connections, String p) throws JMSException {
        Session session = transacted(connections.open());
        Session other = Talk.session(connections.open());
        Topic topic = session.createTopic(p + ".news.tx");
        MessageConsumer one = other.createConsumer(topic);
        MessageConsumer two = Talk.session(connections.open()).createConsumer(topic);
        Talk.send(session, topic, "never");
        session.rollback();
        Talk.send(session, topic, TEN);
        Talk.silent("a subscriber before the commit", one);
        session.commit();
        Talk.only("one subscriber", one, TEN);
        Talk.only("the other", two, TEN);
    }

    static void durable(Connections connections, String p) throws JMSException {
        String name = p + "-tx-sub";
        Connection connection = connections.openAs(p + "-tx-durable");
        Session session = transacted(connection);
        Topic topic = session.createTopic(p + ".news.txdurable");
        MessageConsumer first = session.createDurableConsumer(topic, name);
        Talk.send(Talk.session(connections.open()), topic, TEN);
        Expect.equal("taken", TEN, Talk.take(first, 10));
        session.rollback();
        Expect.equal("taken again", TEN, Talk.take(first, 10));
        session.rollback();
        first.close(); // not before: Qpid JMS fails where it detaches with a transaction's end
        MessageConsumer again = session.createDurableConsumer(topic, name);
        for (String text : TEN) {
            Talk.counted(again, text, 3);
        }
        session.commit();
        again.close();
        MessageConsumer last = session.createDurableConsumer(topic, name);
        Talk.silent("the subscription at last", last);
        last.close();
        session.commit();
        session.unsubscribe(name);
    }

    static void selector(Connections connections, String p) throws JMSException {
        Session session = transacted(connections.open());
        Queue queue = session.createQueue(p + ".tx.selected");
        MessageProducer producer = session.createProducer(queue);
        for (String text : TEN) {
            Message message = session.createTextMessage(text);
            message.setIntProperty("even", Integer.parseInt(text.substring(1)) % 2);
            producer.send(message);
        }
        session.commit();
        List<String> even = List.of("m0", "m2", "m4", "m6", "m8");
        MessageConsumer chosen = session.createConsumer(queue, "even = 0");
        Expect.equal("chosen", even, Talk.take(chosen, 5));
        session.rollback();
        Talk.only("the same", chosen, even);
        session.commit();
        chosen.close();
        Talk.only("the rest", session.createConsumer(queue), List.of("m1", "m3", "m5", "m7", "m9"));
        session.commit();
    }

    /** A request, its answer and both acknowledgements in transactions, over a temporary queue. */
    static void temporary(Connections connections, String p) throws JMSException {
        Session asking = transacted(connections.open());
        Session serving = transacted(connections.open());
        Queue queue = asking.createQueue(p + ".tx.service");
        TemporaryQueue answers = asking.createTemporaryQueue();
        MessageConsumer awaited = asking.createConsumer(answers);
        TextMessage request = asking.createTextMessage("hello");
        request.setJMSReplyTo(answers);
        asking.createProducer(queue).send(request);
        asking.commit();
        MessageConsumer service = serving.createConsumer(queue);
        Message asked = Talk.next(service);
        Talk.send(serving, asked.getJMSReplyTo(), "too early");
        serving.rollback();
        asked = Talk.next(service);
        Talk.send(serving, asked.getJMSReplyTo(), "HELLO");
        Talk.silent("the asker before the commit", awaited);
        serving.commit();
        Talk.only("the asker", awaited, List.of("HELLO"));
        asking.commit();
    }

    /** Bodies that go through a file: over 1 MB. */
    static void large(Connections connections, String p) throws JMSException {
        byte[] body = new byte[3 << 20];
        new Random(3).nextBytes(body);
        Session session = transacted(connections.open());
        Session other = Talk.session(connections.open());
        Queue queue = session.createQueue(p + ".tx.large");
        MessageProducer producer = session.createProducer(queue);
        producer.send(bytes(session, body));
        session.rollback();
        MessageConsumer waiting = other.createConsumer(queue);
        Talk.silent("after the rollback", waiting);
        waiting.close();
        producer.send(bytes(session, body));
        producer.send(bytes(session, body));
        session.commit();
        MessageConsumer consumer = session.createConsumer(queue);
        for (int attempt = 1; attempt <= 2; attempt++) {
            for (int i = 0; i < 2; i++) {
                BytesMessage came = (BytesMessage) consumer.receive(4 * Talk.SOON_MS);
                Expect.that(came != null, "the message", "none");
                Expect.equal("delivery", attempt, came.getIntProperty("JMSXDeliveryCount"));
                byte[] received = new byte[(int) came.getBodyLength()];
                came.readBytes(received);
                Expect.that(Arrays.equals(body, received), "the same bytes", "others");
            }
            if (attempt == 1) {
                session.rollback();
            } else {
                session.commit();
            }
        }
        Talk.silent("at last", consumer);
    }

    private static Message bytes(Session session, byte[] body) throws JMSException {
        BytesMessage message = session.createBytesMessage();
        message.writeBytes(body);
        return message;
    }

    /** Sends with a CompletionListener: each completes, and a commit waits for them. */
    static void async(Connections connections, String p) throws Exception {
        int count = 500;
        Session session = transacted(connections.open());
        Queue queue = session.createQueue(p + ".tx.async");
        List<String> texts = Talk.numbered("m", count);
        for (int attempt = 0; attempt < 2; attempt++) {
            MessageProducer producer = session.createProducer(queue);
            CountDownLatch completed = new CountDownLatch(count);
            AtomicInteger failed = new AtomicInteger();
            for (String text : texts) {
                producer.send(session.createTextMessage(text), new CompletionListener() {
                    @Override
                    public void onCompletion(Message message) {
                        completed.countDown();
                    }

                    @Override
                    public void onException(Message message, Exception fault) {
                        failed.incrementAndGet();
                        completed.countDown();
                    }
                });
            }
            if (attempt == 0) {
                session.rollback();
            } else {
                session.commit();
            }
            Expect.that(completed.await(5, TimeUnit.SECONDS), "all to complete", completed.getCount() + " missing");
            Expect.equal("failed sends", 0, failed.get());
            producer.close();
        }
        Expect.equal("after the commit", texts, Talk.take(session.createConsumer(queue), count));
        session.commit();
    }

    /** Presettled sends and receives have their own modes in Qpid JMS; none may break the transaction. */
    static void presettled(Connections connections, String p) throws JMSException {
        Session session = transacted(connections.open("jms.presettlePolicy.presettleTransactedProducers=true"));
        Session other = Talk.session(connections.open());
        Queue queue = session.createQueue(p + ".tx.presettled");
        MessageConsumer consumer = other.createConsumer(queue);
        Talk.send(session, queue, TEN);
        session.rollback();
        Talk.send(session, queue, TEN);
        Talk.silent("before the commit", consumer);
        session.commit();
        Talk.only("after the commit", consumer, TEN);
    }

    /** A producer without a destination: the anonymous relay. */
    static void relay(Connections connections, String p) throws JMSException {
        Session session = transacted(connections.open());
        Session other = Talk.session(connections.open());
        MessageProducer producer = session.createProducer(null);
        List<MessageConsumer> consumers = new ArrayList<>();
        for (int i = 0; i < 3; i++) {
            consumers.add(other.createConsumer(other.createQueue(p + ".tx.relay" + i)));
        }
        for (int attempt = 0; attempt < 2; attempt++) {
            for (int i = 0; i < 3; i++) {
                Queue queue = session.createQueue(p + ".tx.relay" + i);
                producer.send(queue, session.createTextMessage("to " + i));
            }
            if (attempt == 0) {
                session.rollback();
            }
        }
        Talk.silent("before the commit", consumers.get(0));
        session.commit();
        for (int i = 0; i < 3; i++) {
            Talk.only("queue " + i, consumers.get(i), List.of("to " + i));
        }
    }

    /** Messages that fail by rollback end in the dead-letter queue, and nothing else does. */
    static void deadLetter(Connections connections, String p) throws JMSException {
        Session session = transacted(connections.open());
        Queue queue = session.createQueue(p + ".tx.failing");
        MessageConsumer dead = Talk.session(connections.open()).createConsumer(session.createQueue(p + ".tx.dead"));
        Talk.send(session, queue, "bad", "good");
        session.commit();
        MessageConsumer consumer = session.createConsumer(queue);
        for (int attempt = 1; attempt <= 3; attempt++) {
            Talk.counted(consumer, "bad", attempt);
            session.rollback();
        }
        Talk.counted(consumer, "good", 1);
        session.commit();
        Talk.only("the dead-letter queue", dead, List.of("bad"));
        Talk.silent("the queue", consumer);
    }

    static void recover(Connections connections, String p) throws JMSException {
        Session session = transacted(connections.open());
        try {
            session.recover();
            throw Expect.failure("IllegalStateException of recover in a transacted session", "nothing");
        } catch (IllegalStateException e) {
            // JMS says so
        }
        Session acknowledging = Talk.clientAcknowledge(connections.open());
        Queue queue = session.createQueue(p + ".tx.recover");
        Talk.send(session, queue, TEN);
        session.commit();
        MessageConsumer consumer = acknowledging.createConsumer(queue);
        for (int attempt = 1; attempt <= 3; attempt++) {
            for (int i = 0; i < 3; i++) {
                Talk.counted(consumer, "m" + i, attempt);
            }
            acknowledging.recover();
        }
        for (String text : TEN.subList(0, 9)) {
            Expect.equal("next", text, Talk.nextText(consumer));
        }
        Message last = Talk.next(consumer);
        last.acknowledge();
        acknowledging.close();
        Talk.silent("then", Talk.session(connections.open()).createConsumer(queue));
    }

    /** `maxRedeliveries` of Qpid JMS in a transacted session: the client settles by itself, here `REJECTED`. */
    static void redeliveryPolicy(Connections connections, String p) throws JMSException {
        Session session = transacted(connections.open(
                "jms.redeliveryPolicy.maxRedeliveries=1", "jms.redeliveryPolicy.outcome=REJECTED"));
        Queue queue = session.createQueue(p + ".tx.policy");
        MessageConsumer dead = Talk.session(connections.open()).createConsumer(session.createQueue("DLQ"));
        Talk.send(session, queue, p + " policy", "good");
        session.commit();
        MessageConsumer consumer = session.createConsumer(queue);
        Talk.counted(consumer, p + " policy", 1);
        session.rollback();
        Talk.counted(consumer, p + " policy", 2);
        session.rollback();
        Talk.counted(consumer, "good", 1);
        session.commit();
        Talk.only("the dead-letter queue", dead, List.of(p + " policy"));
    }

    /** Time to live, and messages that aren't durable. */
    static void unlike(Connections connections, String p) throws Exception {
        Session session = transacted(connections.open("jms.localMessageExpiry=false"));
        Queue queue = session.createQueue(p + ".tx.unlike");
        MessageProducer producer = session.createProducer(queue);
        producer.send(session.createTextMessage("gone"), DeliveryMode.NON_PERSISTENT, 4, 200);
        Thread.sleep(400);
        producer.send(session.createTextMessage("stays"), DeliveryMode.NON_PERSISTENT, 4, 0);
        session.commit();
        MessageConsumer consumer = session.createConsumer(queue);
        Talk.only("after the commit", consumer, List.of("stays"));
        session.commit();
    }

    /** A queue that stops at 10, a transaction of 20: nothing hangs, the broker rolls it back when its time is over. */
    static void full(Connections connections, String p) throws JMSException {
        Session session = transacted(connections.open());
        Queue queue = session.createQueue(p + ".small.tx");
        long began = System.nanoTime();
        String said = fill(session, queue, 20);
        long seconds = TimeUnit.NANOSECONDS.toSeconds(System.nanoTime() - began);
        Expect.that(!said.isEmpty(), "a send or the commit to fail", "a commit");
        Expect.that(seconds < 12, "an end within the transaction's time", seconds + " s");
        MessageConsumer consumer = Talk.session(connections.open()).createConsumer(queue);
        Talk.silent("a consumer afterwards", consumer);
        session.close(); // its producer may keep a credit, and the next transaction needs all of the room
        Session next = transacted(connections.open());
        Expect.equal("a transaction that fits", "", fill(next, queue, 10));
        Talk.only("a consumer", consumer, TEN);
    }

    private static String fill(Session session, Queue queue, int count) throws JMSException {
        try {
            MessageProducer producer = session.createProducer(queue);
            for (String text : Talk.numbered("m", count)) {
                producer.send(session.createTextMessage(text));
            }
            session.commit();
            return "";
        } catch (JMSException fault) {
            return fault.toString();
        }
    }

    /** More bytes than `max_transaction_size`: the commit fails and says so; the session is usable after. */
    static void tooLarge(Connections connections, String p) throws JMSException {
        Session session = transacted(connections.open());
        Queue queue = session.createQueue(p + ".tx.toolarge");
        MessageProducer producer = session.createProducer(queue);
        byte[] body = new byte[100 << 10];
        try {
            for (int i = 0; i < 20; i++) {
                producer.send(bytes(session, body)); // Qpid JMS doesn't wait for its outcome
            }
            session.commit();
            throw Expect.failure("the commit to fail", "a commit");
        } catch (JMSException fault) {
            // Qpid JMS makes of `amqp:transaction:rollback` a JmsTransactionInDoubtException.
            Expect.that(fault.getMessage().contains("a message that it had no room for"), "the reason", fault);
        }
        producer = session.createProducer(queue);
        producer.send(session.createTextMessage("small"));
        session.commit();
        Talk.only("a consumer", Talk.session(connections.open()).createConsumer(queue), List.of("small"));
    }

    /** More transactions than `max_transactions`: the session for one more is refused, and works once there is room. */
    static void tooMany(Connections connections, String p) throws JMSException {
        Connection connection = connections.open();
        List<Session> sessions = new ArrayList<>();
        String said = "";
        try {
            for (int i = 0; i < 30; i++) {
                sessions.add(transacted(connection));
            }
        } catch (JMSException fault) {
            said = fault.toString();
        }
        Expect.equal("sessions", 20, sessions.size());
        Expect.that(said.contains("limits.max_transactions: 20 are open"), "a refusal for the number", said);
        sessions.get(0).close();
        Session more = transacted(connection);
        Queue queue = more.createQueue(p + ".tx.many");
        Talk.send(more, queue, "one more");
        more.commit();
        Talk.only("a consumer", Talk.session(connections.open()).createConsumer(queue), List.of("one more"));
    }

    /** A transaction that is open for longer than `transaction_timeout`: the commit fails, the session goes on. */
    static void timeout(Connections connections, String p) throws Exception {
        Session session = transacted(connections.open());
        Queue queue = session.createQueue(p + ".tx.timeout");
        Talk.send(session, queue, "late");
        Thread.sleep(6000);
        try {
            session.commit();
            throw Expect.failure("the commit to fail", "a commit");
        } catch (JMSException fault) {
            Expect.that(String.valueOf(fault.getMessage()).contains("time was over"), "the reason", fault);
        }
        Talk.send(session, queue, "in time");
        session.commit();
        Talk.only("a consumer", Talk.session(connections.open()).createConsumer(queue), List.of("in time"));
    }

    /** A session that waits for longer than that: its transaction's time begins with the message. */
    static void idle(Connections connections, String p) throws Exception {
        Session session = transacted(connections.open());
        Session other = Talk.session(connections.open());
        Queue queue = session.createQueue(p + ".tx.idle");
        MessageConsumer consumer = session.createConsumer(queue);
        Expect.equal("a message", null, consumer.receive(6000));
        Talk.send(other, queue, "at last");
        Talk.only("the consumer", consumer, List.of("at last"));
        session.commit();
        consumer.close();
        Talk.silent("another", other.createConsumer(queue));
    }

    static Session transacted(Connection connection) throws JMSException {
        return connection.createSession(true, Session.SESSION_TRANSACTED);
    }
}
