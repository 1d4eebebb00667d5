package sluice.clients.jms;

import jakarta.jms.JMSException;
import java.util.List;
import java.util.Map;
import sluice.clients.Case;
import sluice.clients.Library;
import sluice.clients.Login;

/** Qpid JMS. */
public final class Jms implements Library<Connections> {
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
            Map.entry("transacted-commit", TransactionFeatures::commit),
            Map.entry("transacted-rollback", TransactionFeatures::rollback),
            Map.entry("transacted-several", TransactionFeatures::several),
            Map.entry("transacted-closed-before", TransactionFeatures::closedBefore),
            Map.entry("transacted-two-sessions", TransactionFeatures::twoSessions),
            Map.entry("transacted-closed-session", TransactionFeatures::closedSession),
            Map.entry("transacted-larger", TransactionFeatures::larger),
            Map.entry("transacted-topics", TransactionFeatures::topics),
            Map.entry("transacted-durable", TransactionFeatures::durable),
            Map.entry("transacted-selector", TransactionFeatures::selector),
            Map.entry("transacted-temporary", TransactionFeatures::temporary),
            Map.entry("transacted-large", TransactionFeatures::large),
            Map.entry("transacted-async", TransactionFeatures::async),
            Map.entry("transacted-presettled", TransactionFeatures::presettled),
            Map.entry("transacted-relay", TransactionFeatures::relay),
            Map.entry("transacted-dead-letter", TransactionFeatures::deadLetter),
            Map.entry("transacted-recover", TransactionFeatures::recover),
            Map.entry("transacted-redelivery-policy", TransactionFeatures::redeliveryPolicy),
            Map.entry("transacted-unlike", TransactionFeatures::unlike),
            Map.entry("transacted-full", TransactionFeatures::full),
            Map.entry("transacted-too-large", TransactionFeatures::tooLarge),
            Map.entry("transacted-too-many", TransactionFeatures::tooMany),
            Map.entry("transacted-timeout", TransactionFeatures::timeout),
            Map.entry("transacted-idle", TransactionFeatures::idle),
            Map.entry("delay-never-early", DelayFeatures::neverEarly),
            Map.entry("delay-overtaken", DelayFeatures::overtaken),
            Map.entry("delay-transacted", DelayFeatures::transacted),
            Map.entry("delay-topic", DelayFeatures::topic),
            Map.entry("delay-confirmed", DelayFeatures::confirmed),
            Map.entry("delay-expired", DelayFeatures::expired),
            Map.entry("delay-pulled", DelayFeatures::pulled),
            Map.entry("priority-order", PriorityFeatures::order),
            Map.entry("priority-pulled", PriorityFeatures::pulled),
            Map.entry("priority-one", PriorityFeatures::one),
            Map.entry("priority-prefetched", PriorityFeatures::prefetched),
            Map.entry("priority-slow", PriorityFeatures::slow),
            Map.entry("priority-windowed", PriorityFeatures::windowed),
            Map.entry("priority-sorted", PriorityFeatures::sorted),
            Map.entry("priority-transacted", PriorityFeatures::transacted),
            Map.entry("priority-rolled-back", PriorityFeatures::rolledBack),
            Map.entry("priority-fair", PriorityFeatures::fair),
            Map.entry("groups-divided", GroupFeatures::divided),
            Map.entry("groups-come-and-go", GroupFeatures::comeAndGo),
            Map.entry("groups-busy", GroupFeatures::busy),
            Map.entry("groups-closed", GroupFeatures::closed),
            Map.entry("groups-first", GroupFeatures::first),
            Map.entry("groups-rolled-back", GroupFeatures::rolledBack),
            Map.entry("groups-transacted", GroupFeatures::transacted),
            Map.entry("last-replaced", LastValueFeatures::replaced),
            Map.entry("last-position", LastValueFeatures::position),
            Map.entry("last-read", LastValueFeatures::read),
            Map.entry("last-key", LastValueFeatures::key),
            Map.entry("last-rolled-back", LastValueFeatures::rolledBack),
            Map.entry("last-expiry", LastValueFeatures::expiry),
            Map.entry("last-transacted", LastValueFeatures::transacted),
            Map.entry("stream-read", StreamFeatures::read),
            Map.entry("stream-named", StreamFeatures::named),
            Map.entry("stream-recovered", StreamFeatures::recovered),
            Map.entry("again-recover", RedeliveryFeatures::recover),
            Map.entry("again-recover-delay", RedeliveryFeatures::recoverWithDelay),
            Map.entry("again-rollback-delay", RedeliveryFeatures::rollbackWithDelay),
            Map.entry("again-multiplied", RedeliveryFeatures::multiplied),
            Map.entry("again-modified", RedeliveryFeatures::modified),
            Map.entry("again-listener", RedeliveryFeatures::listener),
            Map.entry("again-closed", RedeliveryFeatures::closed),
            Map.entry("again-in-place", RedeliveryFeatures::inPlace));

    @Override
    public Connections connections() {
        return new Connections();
    }

    @Override
    public Login login(String mechanism, String user, String password, String address) {
        try (Connections connections = connections()) {
            return connections.login(mechanism, user, password, address);
        } catch (Exception e) {
            return new Login(false, false, e.toString());
        }
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
        return new JmsSoak(prefix, seed).run(seconds);
    }
}
