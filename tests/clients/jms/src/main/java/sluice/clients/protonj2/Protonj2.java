package sluice.clients.protonj2;

import java.util.List;
import java.util.Map;
import sluice.clients.Case;
import sluice.clients.Library;
import sluice.clients.Login;

/** Protonj2's imperative client, which has every AMQP type and more of its links than JMS. */
public final class Protonj2 implements Library<Connections> {
    private static final Map<String, Feature<Connections>> FEATURES = Map.ofEntries(
            Map.entry("send-receive", QueueFeatures::sendReceive),
            Map.entry("presettled", QueueFeatures::presettled),
            Map.entry("blocked", QueueFeatures::blocked),
            Map.entry("credit", QueueFeatures::credit),
            Map.entry("outcomes", QueueFeatures::outcomes),
            Map.entry("redelivery", QueueFeatures::redelivery),
            Map.entry("acknowledge", QueueFeatures::acknowledge),
            Map.entry("browse", QueueFeatures::browse),
            Map.entry("selector", QueueFeatures::selector),
            Map.entry("bad-selector", QueueFeatures::badSelector),
            Map.entry("exclusive", QueueFeatures::exclusive),
            Map.entry("single-active", QueueFeatures::singleActive),
            Map.entry("expiry", QueueFeatures::expiry),
            Map.entry("priority", QueueFeatures::priority),
            Map.entry("large", QueueFeatures::large),
            Map.entry("reply", NodeFeatures::reply),
            Map.entry("temporary-topic", NodeFeatures::temporaryTopic),
            Map.entry("relay", NodeFeatures::relay),
            Map.entry("queue-capability", NodeFeatures::queueCapability),
            Map.entry("topic-capability", NodeFeatures::topicCapability),
            Map.entry("prefixes", NodeFeatures::prefixes),
            Map.entry("topic", NodeFeatures::topic),
            Map.entry("wildcard", NodeFeatures::wildcard),
            Map.entry("not-found", NodeFeatures::notFound),
            Map.entry("durable-subscription", SubscriptionFeatures::durable),
            Map.entry("shared-subscription", SubscriptionFeatures::shared),
            Map.entry("shared-durable", SubscriptionFeatures::sharedDurable),
            Map.entry("no-local", SubscriptionFeatures::noLocal),
            Map.entry("drain", LinkFeatures::drain),
            Map.entry("reattach", LinkFeatures::reattach),
            Map.entry("idle", LinkFeatures::idle),
            Map.entry("websocket", LinkFeatures::websocket),
            Map.entry("transaction", LinkFeatures::transaction));

    @Override
    public Connections connections() {
        return new Connections();
    }

    @Override
    public Login login(String mechanism, String user, String password, String address) {
        Connections connections = connections();
        Login came = connections.login(mechanism, user, password, address);
        if (came.entered()) {
            connections.close();
        }
        return came;
    }

    @Override
    public Map<String, Feature<Connections>> features() {
        return FEATURES;
    }

    @Override
    public void sendTypes(String address, List<Case> cases) throws Exception {
        Types.send(address, cases);
    }

    @Override
    public void receiveTypes(String address, int count) throws Exception {
        Types.receive(address, count);
    }

    @Override
    public int soak(String prefix, long seconds, long seed) throws Exception {
        return new Protonj2Soak(prefix, seed).run(seconds);
    }
}
