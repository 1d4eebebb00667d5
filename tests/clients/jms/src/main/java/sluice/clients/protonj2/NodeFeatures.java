package sluice.clients.protonj2;

import java.util.List;
import java.util.Map;
import org.apache.qpid.protonj2.client.Connection;
import org.apache.qpid.protonj2.client.Message;
import org.apache.qpid.protonj2.client.Receiver;
import org.apache.qpid.protonj2.client.ReceiverOptions;
import org.apache.qpid.protonj2.client.Sender;
import org.apache.qpid.protonj2.client.SenderOptions;
import sluice.clients.Expect;

/** Features of addresses: which node an address names, makes or is refused. */
final class NodeFeatures {
    private static final String NOT_FOUND = "amqp:not-found";

    private NodeFeatures() {}

    static void reply(Connections connections, String p) throws Exception {
        Connection requester = connections.open();
        Receiver answers = requester.openDynamicReceiver().openFuture().get();
        Message<String> request = Message.create("question");
        request.messageId("question-1").replyTo(answers.address());
        Talk.sender(requester, p + ".reply").send(request).awaitAccepted();

        Connection responder = connections.open();
        Message<?> question = Talk.next(Talk.receiver(responder, p + ".reply")).message();
        Message<String> response = Message.create("answer");
        response.correlationId(question.messageId());
        Talk.sender(responder, question.replyTo()).send(response).awaitAccepted();

        Message<?> answer = Talk.next(answers).message();
        Expect.equal("the answer", "answer", answer.body());
        Expect.equal("its correlation-id", "question-1", answer.correlationId());
        String gone = answers.address();
        requester.close();
        Talk.refused("a sender to " + gone, NOT_FOUND, () -> Talk.sender(responder, gone));
    }

    static void temporaryTopic(Connections connections, String p) throws Exception {
        Connection owner = connections.open();
        ReceiverOptions options = new ReceiverOptions();
        options.sourceOptions().capabilities("temporary-topic");
        Receiver first = owner.openDynamicReceiver(Map.of(), options).openFuture().get();
        Receiver second = Talk.receiver(owner, first.address());
        List<String> texts = Talk.numbered("m", 3);
        Talk.send(connections.open(), first.address(), texts);
        Talk.only("the first", first, texts);
        Talk.only("the second", second, texts);
    }

    static void relay(Connections connections, String p) throws Exception {
        Connection connection = connections.open();
        List<String> addresses = List.of(p + ".relay1", p + ".relay2");
        Sender sender = connection.openAnonymousSender().openFuture().get();
        for (int round = 0; round < 2; round++) {
            for (String address : addresses) {
                sender.send(Message.create(address + " " + round).to(address)).awaitAccepted();
            }
        }
        for (String address : addresses) {
            Talk.only(address, Talk.receiver(connection, address), List.of(address + " 0", address + " 1"));
        }
    }

    static void queueCapability(Connections connections, String p) throws Exception {
        Connection connection = connections.open();
        ReceiverOptions one = capable("queue").creditWindow(1);
        Receiver first = Talk.receiver(connection, p + ".made.queue", one);
        Receiver second = Talk.receiver(connection, p + ".made.queue", one);
        List<String> texts = Talk.numbered("m", 10);
        Talk.send(capableSender(connection, p + ".made.queue", "queue"), texts);
        Talk.divided(first, second, texts);
    }

    static void topicCapability(Connections connections, String p) throws Exception {
        Connection connection = connections.open();
        Receiver first = Talk.receiver(connection, p + ".made.topic", capable("topic"));
        Receiver second = Talk.receiver(connection, p + ".made.topic", capable("topic"));
        List<String> texts = Talk.numbered("m", 10);
        Talk.send(capableSender(connection, p + ".made.topic", "topic"), texts);
        Talk.only("the first", first, texts);
        Talk.only("the second", second, texts);
    }

    private static ReceiverOptions capable(String capability) {
        ReceiverOptions options = new ReceiverOptions();
        options.sourceOptions().capabilities(capability);
        return options;
    }

    private static Sender capableSender(Connection connection, String address, String capability) throws Exception {
        SenderOptions options = new SenderOptions();
        options.targetOptions().capabilities(capability);
        return Talk.sender(connection, address, options);
    }

    static void prefixes(Connections connections, String p) throws Exception {
        Connection connection = connections.open();
        Talk.send(connection, "queue://" + p + ".prefixed", "to the queue");
        Talk.only(p + ".prefixed", Talk.receiver(connection, p + ".prefixed"), List.of("to the queue"));
        Receiver topic = Talk.receiver(connection, "/" + p + ".news.prefixed");
        Talk.send(connection, "topic://" + p + ".news.prefixed", "to the topic");
        Talk.only("/" + p + ".news.prefixed", topic, List.of("to the topic"));
    }

    static void topic(Connections connections, String p) throws Exception {
        Connection connection = connections.open();
        Talk.send(connection, p + ".news.all", "before");
        Receiver first = Talk.receiver(connection, p + ".news.all");
        Receiver second = Talk.receiver(connection, p + ".news.all");
        List<String> texts = Talk.numbered("m", 10);
        Talk.send(connection, p + ".news.all", texts);
        Talk.only("the first", first, texts);
        Talk.only("the second", second, texts);
    }

    static void wildcard(Connections connections, String p) throws Exception {
        Connection connection = connections.open();
        Receiver europe = Talk.receiver(connection, p + ".news.eu.*");
        Receiver everything = Talk.receiver(connection, p + ".news.>");
        Talk.send(connection, p + ".news.us.ny", "ny");
        Talk.send(connection, p + ".news.eu.fr", "fr");
        Talk.only(p + ".news.eu.*", europe, List.of("fr"));
        Talk.only(p + ".news.>", everything, List.of("ny", "fr"));
    }

    static void notFound(Connections connections, String p) throws Exception {
        Connection connection = connections.open();
        Talk.refused("a sender", NOT_FOUND, () -> Talk.sender(connection, p + ".closed.nowhere"));
        Talk.refused("a receiver", NOT_FOUND, () -> Talk.receiver(connection, p + ".closed.nowhere"));
    }
}
