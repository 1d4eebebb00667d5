package sluice.clients.protonj2;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import org.apache.qpid.protonj2.client.Delivery;
import org.apache.qpid.protonj2.client.DeliveryMode;
import org.apache.qpid.protonj2.client.DistributionMode;
import org.apache.qpid.protonj2.client.Message;
import org.apache.qpid.protonj2.client.Receiver;
import org.apache.qpid.protonj2.client.ReceiverOptions;
import org.apache.qpid.protonj2.client.Sender;
import org.apache.qpid.protonj2.client.SenderOptions;
import org.apache.qpid.protonj2.client.Tracker;
import org.apache.qpid.protonj2.client.exceptions.ClientException;
import org.apache.qpid.protonj2.types.Symbol;
import sluice.clients.Expect;
import sluice.clients.Soak;
import sluice.clients.Wire;

/** A soak of links: credit and outcomes by hand, drains, detaching, names. */
final class Protonj2Soak extends Soak {
    private static final int MAX_PEERS = 4;
    private static final int MAX_KEPT = 6;
    private static final Symbol SELECTOR = Symbol.valueOf("apache.org:selector-filter:string");

    private final Connections connections = new Connections();
    private final List<Peer> peers = new ArrayList<>();
    private final Set<String> subscriptions = new HashSet<>(); // "container id/topic" of those the broker keeps
    private int links;

    Protonj2Soak(String prefix, long seed) {
        super(prefix, seed);
    }

    @Override
    protected List<Action> actions() {
        return List.of(
                this::connect, this::hangUp, this::cut,
                this::send, this::send, this::send, this::sendByRelay, this::sendToTopic, this::sendReattached,
                this::open, this::open, this::share, this::credit, this::credit, this::drain,
                this::receive, this::receive, this::receive, this::receive, this::closeKept,
                this::empty, this::empty, this::browse, this::subscribe, this::unsubscribe, this::askAndAnswer);
    }

    private Peer peer() throws Exception {
        if (peers.isEmpty()) {
            connect();
        }
        return any(peers);
    }

    private void connect() throws Exception {
        if (peers.size() < MAX_PEERS) {
            boolean cuttable = chance(50);
            String containerId = cuttable ? null : freeContainerId();
            peers.add(new Peer(connections, containerId, cuttable ? new Wire() : null, this::failed));
        }
    }

    private String freeContainerId() {
        List<String> taken = peers.stream().map(peer -> peer.containerId).toList();
        int slot = 0;
        while (taken.contains(prefix + "-protonj2-soak-" + slot)) {
            slot++;
        }
        return prefix + "-protonj2-soak-" + slot;
    }

    private void hangUp() throws Exception {
        Peer peer = peer();
        peer.close();
        peers.remove(peer);
    }

    private void cut() throws Exception {
        Peer peer = peer();
        if (peer.canBeCut()) {
            peer.cut();
            peers.remove(peer);
        }
    }

    private void send() throws Exception {
        DeliveryMode mode = chance(20) ? DeliveryMode.AT_MOST_ONCE : DeliveryMode.AT_LEAST_ONCE;
        Sender sender = Talk.sender(peer().connection, queueName(), new SenderOptions().deliveryMode(mode));
        sendSome(sender, null);
        sender.close();
    }

    private void sendToTopic() throws Exception {
        Sender sender = Talk.sender(peer().connection, topicName());
        sendSome(sender, null);
        sender.close();
    }

    private void sendByRelay() throws Exception {
        Sender sender = peer().connection.openAnonymousSender().openFuture().get();
        sendSome(sender, queueName());
        sender.close();
    }

    private void sendReattached() throws Exception {
        Peer peer = peer();
        String queue = queueName();
        SenderOptions options = new SenderOptions().linkName("soak-sender-" + links++);
        Sender before = Talk.sender(peer.connection, queue, options);
        sendSome(before, null);
        before.detach();
        Sender after = Talk.sender(peer.connection, queue, options);
        sendSome(after, null);
        after.close();
    }

    private void sendSome(Sender sender, String to) throws ClientException {
        List<Tracker> sent = new ArrayList<>();
        for (int i = random.nextInt(5); i >= 0; i--) {
            Message<String> message = Message.create(text());
            message.property("weight", random.nextInt(20)).durable(chance(50)).priority((byte) random.nextInt(10));
            if (chance(10)) {
                message.timeToLive(1 + random.nextInt(1000));
            }
            if (to != null) {
                message.to(to);
            }
            sent.add(sender.send(message));
        }
        for (Tracker tracker : sent) {
            tracker.awaitSettlement(Talk.SOON_MS, TimeUnit.MILLISECONDS);
        }
    }

    private void open() throws Exception {
        Peer peer = peer();
        if (peer.kept.size() == MAX_KEPT) {
            return;
        }
        boolean byHand = chance(70);
        ReceiverOptions options = byHand ? Talk.manual() : new ReceiverOptions().creditWindow(1 + random.nextInt(20));
        if (!byHand && chance(30)) {
            options.deliveryMode(DeliveryMode.AT_MOST_ONCE);
        }
        if (chance(20)) {
            options.sourceOptions().addFilter("jms-selector", SELECTOR, "weight > 10");
        }
        String address = chance(30) ? topicOrPattern() : queueName();
        peer.kept.add(new Peer.Kept(Talk.receiver(peer.connection, address, options), byHand));
    }

    private void share() throws Exception {
        Peer peer = peer();
        if (peer.kept.size() < MAX_KEPT) {
            int topic = random.nextInt(TOPICS);
            ReceiverOptions options = Talk.manual().linkName("shared-" + topic + "|volatile" + links++);
            options.sourceOptions().capabilities("topic", "shared");
            String address = prefix + ".news.soak." + topic;
            peer.kept.add(new Peer.Kept(Talk.receiver(peer.connection, address, options), true));
        }
    }

    private Peer.Kept keptByHand() throws Exception {
        List<Peer.Kept> byHand = peer().kept.stream().filter(Peer.Kept::byHand).toList();
        return byHand.isEmpty() ? null : any(byHand);
    }

    private void credit() throws Exception {
        Peer.Kept kept = keptByHand();
        if (kept != null) {
            kept.receiver().addCredit(1 + random.nextInt(20));
        }
    }

    private void drain() throws Exception {
        Peer.Kept kept = keptByHand();
        if (kept != null) {
            kept.receiver().drain().get(Talk.SOON_MS, TimeUnit.MILLISECONDS);
        }
    }

    private void receive() throws Exception {
        Peer peer = peer();
        if (peer.kept.isEmpty()) {
            return;
        }
        Peer.Kept kept = any(peer.kept);
        for (int i = random.nextInt(10); i >= 0; i--) {
            Delivery delivery = kept.receiver().receive(20, TimeUnit.MILLISECONDS);
            if (delivery == null) {
                break;
            }
            delivery.message();
            if (kept.byHand()) {
                settle(delivery);
            }
        }
    }

    /** An outcome settles; leaving the delivery open is one way. */
    private void settle(Delivery delivery) throws ClientException {
        switch (random.nextInt(6)) {
            case 0:
                delivery.release();
                break;
            case 1:
                delivery.reject("amqp:internal-error", "not wanted");
                break;
            case 2:
                delivery.modified(chance(50), chance(50));
                break;
            case 3:
                break;
            default:
                delivery.accept();
        }
    }

    private void closeKept() throws Exception {
        Peer peer = peer();
        if (!peer.kept.isEmpty()) {
            Peer.Kept kept = any(peer.kept);
            if (chance(50)) {
                kept.receiver().close();
            } else {
                kept.receiver().detach();
            }
            peer.kept.remove(kept);
        }
    }

    /** Keeps queues from growing for ever. */
    private void empty() throws Exception {
        Receiver receiver = Talk.receiver(peer().connection, queueName());
        for (int i = 0; i < 200 && receiver.receive(20, TimeUnit.MILLISECONDS) != null; i++) {
            // taken
        }
        receiver.close();
    }

    private void browse() throws Exception {
        ReceiverOptions options = new ReceiverOptions();
        options.sourceOptions().distributionMode(DistributionMode.COPY);
        Receiver browser = Talk.receiver(peer().connection, queueName(), options);
        for (int i = random.nextInt(50); i > 0 && browser.receive(20, TimeUnit.MILLISECONDS) != null; i--) {
            // seen
        }
        browser.close();
    }

    private void subscribe() throws Exception {
        Peer peer = peer();
        if (peer.containerId == null) {
            return;
        }
        String topic = topicName();
        Receiver open = peer.durable.remove(topic);
        if (open == null) {
            peer.durable.put(topic, peer.connection.openDurableReceiver(topic, topic).openFuture().get());
            subscriptions.add(peer.containerId + "/" + topic);
        } else {
            for (int i = 0; i < 10 && open.receive(20, TimeUnit.MILLISECONDS) != null; i++) {
                // taken
            }
            open.detach();
        }
    }

    private void unsubscribe() throws Exception {
        Peer peer = peer();
        String topic = topicName();
        if (subscriptions.remove(peer.containerId + "/" + topic)) {
            Receiver open = peer.durable.remove(topic);
            unsubscribe(open == null ? peer.connection.openDurableReceiver(topic, topic).openFuture().get() : open);
        }
    }

    /** Closing, unlike detaching, ends a subscription. */
    private static void unsubscribe(Receiver receiver) {
        receiver.close();
    }

    private void askAndAnswer() throws Exception {
        Receiver answers = peer().connection.openDynamicReceiver().openFuture().get();
        Talk.send(peer().connection, answers.address(), "answer");
        Expect.equal("the answer", "answer", Talk.nextText(answers));
        answers.close();
    }

    /** Ends the durable subscriptions too, so that nothing is kept for nobody. */
    @Override
    protected void closeAll() throws Exception {
        for (Peer peer : peers) {
            peer.close();
        }
        peers.clear();
        for (String subscription : subscriptions) {
            String container = subscription.substring(0, subscription.indexOf('/'));
            String topic = subscription.substring(subscription.indexOf('/') + 1);
            Peer peer = new Peer(connections, container, null, this::failed);
            unsubscribe(peer.connection.openDurableReceiver(topic, topic).openFuture().get());
            peer.close();
        }
        connections.close();
    }
}
