package sluice.clients.jms;

import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.MessageConsumer;
import jakarta.jms.Session;
import jakarta.jms.Topic;
import java.util.List;

/** Features of subscriptions: which outlive their link, which are shared, which leave out one's own. */
final class SubscriptionFeatures {
    private static final String ONE_AT_A_TIME = "jms.prefetchPolicy.all=1";

    private SubscriptionFeatures() {}

    static void durable(Connections connections, String p) throws JMSException {
        String container = p + "-durable";
        String name = p + "-sub";
        Session publisher = Talk.session(connections.open());
        Topic topic = publisher.createTopic(p + ".news.durable");

        Connection before = connections.openAs(container);
        Talk.session(before).createDurableConsumer(topic, name).close(); // detaches: close is unsubscribe's
        before.close();
        Talk.send(publisher, topic, "meanwhile");

        Session after = Talk.session(connections.openAs(container));
        MessageConsumer again = after.createDurableConsumer(topic, name);
        Talk.only("the subscription, attached again,", again, List.of("meanwhile"));

        again.close();
        after.unsubscribe(name);
        Talk.send(publisher, topic, "to nobody");
        MessageConsumer anew = after.createDurableConsumer(topic, name);
        Talk.silent("a new subscription", anew);
        anew.close();
        after.unsubscribe(name);
    }

    static void shared(Connections connections, String p) throws JMSException {
        Connection connection = connections.openAs(p + "-shared", ONE_AT_A_TIME);
        Session one = Talk.session(connection);
        Topic topic = one.createTopic(p + ".news.shared");
        MessageConsumer first = one.createSharedConsumer(topic, p + "-sub");
        MessageConsumer second = Talk.session(connection).createSharedConsumer(topic, p + "-sub");
        List<String> texts = Talk.numbered("m", 10);
        Talk.send(Talk.session(connections.open()), topic, texts);
        Talk.divided(first, second, texts);
    }

    static void sharedDurable(Connections connections, String p) throws JMSException {
        String container = p + "-shared-durable";
        String name = p + "-shared-sub";
        Session publisher = Talk.session(connections.open());
        Topic topic = publisher.createTopic(p + ".news.shared");

        // A client id is one connection's.
        Connection one = connections.openAs(container, ONE_AT_A_TIME);
        MessageConsumer first = Talk.session(one).createSharedDurableConsumer(topic, name);
        MessageConsumer second = Talk.session(one).createSharedDurableConsumer(topic, name);
        List<String> texts = Talk.numbered("m", 10);
        Talk.send(publisher, topic, texts);
        Talk.divided(first, second, texts);

        first.close();
        second.close();
        one.close();
        Talk.send(publisher, topic, "meanwhile");
        Session after = Talk.session(connections.openAs(container));
        MessageConsumer again = after.createSharedDurableConsumer(topic, name);
        Talk.only("the subscription, attached again,", again, List.of("meanwhile"));
        again.close();
        after.unsubscribe(name);
    }

    static void noLocal(Connections connections, String p) throws JMSException {
        Session one = Talk.session(connections.open());
        Topic topic = one.createTopic(p + ".news.local");
        MessageConsumer consumer = one.createConsumer(topic, null, true);
        Talk.send(one, topic, "own");
        Talk.send(Talk.session(connections.open()), topic, "another's");
        Talk.only("the receiver", consumer, List.of("another's"));
    }
}
