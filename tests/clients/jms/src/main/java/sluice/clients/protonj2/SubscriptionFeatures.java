package sluice.clients.protonj2;

import java.util.List;
import org.apache.qpid.protonj2.client.Connection;
import org.apache.qpid.protonj2.client.Receiver;
import org.apache.qpid.protonj2.client.ReceiverOptions;
import org.apache.qpid.protonj2.types.Symbol;

/**
 * Features of subscriptions: which outlive their link, which are shared, which leave out one's own.
 *
 * <p>Links of a shared subscription are named as Qpid JMS names them: the subscription's name, then for further
 * links of the same container the name, a bar and a number.
 */
final class SubscriptionFeatures {
    private static final Symbol NO_LOCAL = Symbol.valueOf("apache.org:no-local-filter:list");

    private SubscriptionFeatures() {}

    static void durable(Connections connections, String p) throws Exception {
        String container = p + "-durable";
        String name = p + "-sub";
        String topic = p + ".news.durable";
        Connection publisher = connections.open();

        Connection before = connections.openAs(container);
        before.openDurableReceiver(topic, name).openFuture().get().detach();
        before.close();
        Talk.send(publisher, topic, "meanwhile");

        Connection after = connections.openAs(container);
        Receiver again = after.openDurableReceiver(topic, name).openFuture().get();
        Talk.only("the subscription, attached again,", again, List.of("meanwhile"));

        again.close(); // unsubscribes
        Talk.send(publisher, topic, "to nobody");
        Receiver anew = after.openDurableReceiver(topic, name).openFuture().get();
        Talk.silent("a new subscription", anew);
        anew.close();
    }

    static void shared(Connections connections, String p) throws Exception {
        Connection connection = connections.openAs(p + "-shared");
        String topic = p + ".news.shared";
        Receiver first = Talk.receiver(connection, topic, oneAtATime().linkName(p + "-sub|volatile1"));
        Receiver second = Talk.receiver(connection, topic, oneAtATime().linkName(p + "-sub|volatile2"));
        List<String> texts = Talk.numbered("m", 10);
        Talk.send(connections.open(), topic, texts);
        Talk.divided(first, second, texts);
    }

    static void sharedDurable(Connections connections, String p) throws Exception {
        String container = p + "-shared-durable";
        String name = p + "-shared-sub";
        String topic = p + ".news.shared";
        Connection publisher = connections.open();

        Connection one = connections.openAs(container);
        Connection other = connections.openAs(container);
        Receiver first = one.openDurableReceiver(topic, name, oneAtATime()).openFuture().get();
        Receiver second = other.openDurableReceiver(topic, name, oneAtATime()).openFuture().get();
        List<String> texts = Talk.numbered("m", 10);
        Talk.send(publisher, topic, texts);
        Talk.divided(first, second, texts);

        first.detach();
        second.detach();
        one.close();
        other.close();
        Talk.send(publisher, topic, "meanwhile");
        Connection after = connections.openAs(container);
        Receiver again = after.openDurableReceiver(topic, name, oneAtATime()).openFuture().get();
        Talk.only("the subscription, attached again,", again, List.of("meanwhile"));
        again.close();
    }

    private static ReceiverOptions oneAtATime() {
        ReceiverOptions options = new ReceiverOptions().creditWindow(1);
        options.sourceOptions().capabilities("topic", "shared");
        return options;
    }

    static void noLocal(Connections connections, String p) throws Exception {
        Connection one = connections.open();
        ReceiverOptions options = new ReceiverOptions();
        options.sourceOptions().addFilter("no-local", NO_LOCAL, List.of());
        Receiver receiver = Talk.receiver(one, p + ".news.local", options);
        Talk.send(one, p + ".news.local", "own");
        Talk.send(connections.open(), p + ".news.local", "another's");
        Talk.only("the receiver", receiver, List.of("another's"));
    }
}
