package sluice.clients.jms;

import jakarta.jms.Connection;
import jakarta.jms.DeliveryMode;
import jakarta.jms.Destination;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.QueueBrowser;
import jakarta.jms.Session;
import jakarta.jms.TemporaryQueue;
import java.util.ArrayList;
import java.util.Enumeration;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import sluice.clients.Expect;
import sluice.clients.Soak;
import sluice.clients.Wire;

/** A soak of what a JMS program may do. */
final class JmsSoak extends Soak {
    private static final int MAX_PEERS = 4;
    private static final int MAX_KEPT = 6;
    private static final int INDIVIDUAL_ACKNOWLEDGE = 101;
    private static final int MODIFIED_FAILED_UNDELIVERABLE = 5; // the last of JMS_AMQP_ACK_TYPE's, from 1
    private static final List<Integer> MODES = List.of(
            Session.AUTO_ACKNOWLEDGE, Session.CLIENT_ACKNOWLEDGE, Session.DUPS_OK_ACKNOWLEDGE, INDIVIDUAL_ACKNOWLEDGE);

    private final Connections connections = new Connections();
    private final List<Peer> peers = new ArrayList<>();
    private final Set<String> subscriptions = new HashSet<>(); // "client id/name" of those the broker keeps

    JmsSoak(String prefix, long seed) {
        super(prefix, seed);
    }

    @Override
    protected List<Action> actions() {
        return List.of(
                this::connect, this::hangUp, this::cut,
                this::send, this::send, this::send, this::sendByRelay, this::sendToTopic,
                this::open, this::open, this::receive, this::receive, this::receive, this::receive, this::receive,
                this::closeKept, this::empty, this::empty, this::browse, this::subscribe, this::unsubscribe,
                this::share, this::askAndAnswer);
    }

    private Peer peer() throws Exception {
        if (peers.isEmpty()) {
            connect();
        }
        return any(peers);
    }

    private void connect() throws Exception {
        if (peers.size() == MAX_PEERS) {
            return;
        }
        String prefetch = "jms.prefetchPolicy.all=" + any(List.of(0, 1, 10, 100));
        String presettle = "jms.presettlePolicy.presettleProducers=" + chance(10);
        Peer peer;
        if (chance(50)) {
            Wire wire = new Wire();
            peer = new Peer(connections.openThrough(wire.port(), prefetch, presettle), null, wire);
        } else {
            String clientId = freeClientId();
            peer = new Peer(connections.openAs(clientId, prefetch, presettle), clientId, null);
        }
        listen(peer.connection, peer);
        peers.add(peer);
    }

    private void listen(Connection connection, Peer peer) throws JMSException {
        connection.setExceptionListener(e -> {
            if (!peer.isCut()) {
                failed(e);
            }
        });
    }

    private String freeClientId() {
        List<String> taken = peers.stream().map(peer -> peer.clientId).toList();
        int slot = 0;
        while (taken.contains(prefix + "-jms-soak-" + slot)) {
            slot++;
        }
        return prefix + "-jms-soak-" + slot;
    }

    private void hangUp() throws Exception {
        Peer peer = peer();
        peer.close();
        peers.remove(peer);
    }

    private void cut() throws Exception {
        Peer peer = peer();
        if (peer.wire != null) {
            peer.cut();
            peers.remove(peer);
        }
    }

    private void send() throws Exception {
        Peer peer = peer();
        send(peer, peer.sending.createProducer(peer.sending.createQueue(queueName())), null);
    }

    private void sendToTopic() throws Exception {
        Peer peer = peer();
        send(peer, peer.sending.createProducer(peer.sending.createTopic(topicName())), null);
    }

    private void sendByRelay() throws Exception {
        Peer peer = peer();
        send(peer, peer.sending.createProducer(null), peer.sending.createQueue(queueName()));
    }

    private void send(Peer peer, MessageProducer producer, Destination to) throws JMSException {
        for (int i = random.nextInt(5); i >= 0; i--) {
            Message message = peer.sending.createTextMessage(text());
            message.setIntProperty("weight", random.nextInt(20));
            int durability = chance(50) ? DeliveryMode.PERSISTENT : DeliveryMode.NON_PERSISTENT;
            long ttlMs = chance(10) ? 1 + random.nextInt(1000) : 0;
            if (to == null) {
                producer.send(message, durability, random.nextInt(10), ttlMs);
            } else {
                producer.send(to, message, durability, random.nextInt(10), ttlMs);
            }
        }
        producer.close();
    }

    private void open() throws Exception {
        Peer peer = peer();
        if (peer.kept.size() == MAX_KEPT) {
            return;
        }
        int mode = any(MODES);
        Session session = peer.connection.createSession(mode);
        MessageConsumer consumer;
        if (chance(30)) {
            consumer = session.createConsumer(session.createTopic(topicOrPattern()), null, chance(20));
        } else {
            consumer = session.createConsumer(session.createQueue(queueName()), chance(20) ? "weight > 10" : null);
        }
        peer.kept.add(new Peer.Kept(session, consumer, mode));
    }

    private void receive() throws Exception {
        Peer peer = peer();
        if (peer.kept.isEmpty()) {
            return;
        }
        Peer.Kept kept = any(peer.kept);
        for (int i = random.nextInt(10); i >= 0; i--) {
            Message message = chance(50) ? kept.consumer().receive(20) : kept.consumer().receiveNoWait();
            if (message == null) {
                break;
            }
            settle(kept, message);
        }
    }

    /** In each mode's own ways; leaving it open is one. */
    private void settle(Peer.Kept kept, Message message) throws JMSException {
        if (kept.mode() == INDIVIDUAL_ACKNOWLEDGE && chance(90)) {
            message.setIntProperty("JMS_AMQP_ACK_TYPE", 1 + random.nextInt(MODIFIED_FAILED_UNDELIVERABLE));
            message.acknowledge();
        } else if (kept.mode() == Session.CLIENT_ACKNOWLEDGE && chance(50)) {
            if (chance(20)) {
                kept.session().recover();
            } else {
                message.acknowledge();
            }
        }
    }

    private void closeKept() throws Exception {
        Peer peer = peer();
        if (!peer.kept.isEmpty()) {
            Peer.Kept kept = any(peer.kept);
            kept.session().close();
            peer.kept.remove(kept);
        }
    }

    /** Keeps queues from growing for ever. */
    private void empty() throws Exception {
        Peer peer = peer();
        Session session = Talk.session(peer.connection);
        MessageConsumer consumer = session.createConsumer(session.createQueue(queueName()));
        for (int i = 0; i < 200 && consumer.receive(20) != null; i++) {
            // taken
        }
        session.close();
    }

    private void browse() throws Exception {
        Peer peer = peer();
        QueueBrowser browser = peer.sending.createBrowser(peer.sending.createQueue(queueName()));
        Enumeration<?> messages = browser.getEnumeration();
        for (int i = random.nextInt(50); i > 0 && messages.hasMoreElements(); i--) {
            messages.nextElement();
        }
        browser.close();
    }

    private void subscribe() throws Exception {
        Peer peer = peer();
        if (peer.clientId == null) {
            return;
        }
        int topic = random.nextInt(TOPICS);
        String name = "durable-" + topic;
        if (peer.durable.containsKey(name)) {
            for (int i = 0; i < 10 && peer.durable.get(name).receive(20) != null; i++) {
                // taken
            }
            peer.detach(name);
        } else {
            peer.subscribe(peer.sending.createTopic(prefix + ".news.soak." + topic), name);
            subscriptions.add(peer.clientId + "/" + name);
        }
    }

    private void unsubscribe() throws Exception {
        Peer peer = peer();
        for (int topic = 0; topic < TOPICS; topic++) {
            String name = "durable-" + topic;
            if (subscriptions.contains(peer.clientId + "/" + name)) {
                unsubscribe(peer, name);
                return;
            }
        }
    }

    private void unsubscribe(Peer peer, String name) throws JMSException {
        if (peer.durable.containsKey(name)) {
            peer.detach(name);
        }
        peer.sending.unsubscribe(name);
        subscriptions.remove(peer.clientId + "/" + name);
    }

    private void share() throws Exception {
        Peer peer = peer();
        if (peer.kept.size() < MAX_KEPT) {
            int mode = any(MODES);
            int topic = random.nextInt(TOPICS);
            Session session = peer.connection.createSession(mode);
            MessageConsumer consumer = session.createSharedConsumer(
                    session.createTopic(prefix + ".news.soak." + topic), prefix + "-shared-" + topic);
            peer.kept.add(new Peer.Kept(session, consumer, mode));
        }
    }

    private void askAndAnswer() throws Exception {
        Peer peer = peer();
        Session session = Talk.session(peer.connection);
        TemporaryQueue replies = session.createTemporaryQueue();
        MessageConsumer answers = session.createConsumer(replies);
        Peer other = peer();
        MessageProducer producer = other.sending.createProducer(replies);
        producer.send(other.sending.createTextMessage("answer"));
        producer.close();
        Expect.equal("the answer", "answer", Talk.nextText(answers));
        answers.close();
        if (chance(50)) {
            replies.delete();
        }
        session.close();
    }

    /** Ends the durable subscriptions too, so that nothing is kept for nobody. */
    @Override
    protected void closeAll() throws Exception {
        for (Peer peer : peers) {
            peer.close();
        }
        peers.clear();
        for (String subscription : List.copyOf(subscriptions)) {
            String[] clientAndName = subscription.split("/");
            Peer peer = new Peer(connections.openAs(clientAndName[0]), clientAndName[0], null);
            peer.sending.unsubscribe(clientAndName[1]);
            peer.close();
        }
        connections.close();
    }
}
