package sluice.clients.jms;

import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import jakarta.jms.TemporaryQueue;
import jakarta.jms.TemporaryTopic;
import jakarta.jms.TextMessage;
import jakarta.jms.Topic;
import java.util.List;
import sluice.clients.Expect;

/** Features of addresses: which node an address names, makes or is refused. */
final class NodeFeatures {
    private static final String NOT_FOUND = "amqp:not-found";

    private NodeFeatures() {}

    static void reply(Connections connections, String p) throws JMSException {
        Connection asking = connections.open();
        Session requester = Talk.session(asking);
        Queue requests = requester.createQueue(p + ".reply");
        TemporaryQueue replies = requester.createTemporaryQueue();
        MessageConsumer answers = requester.createConsumer(replies);
        TextMessage request = requester.createTextMessage("question");
        request.setJMSReplyTo(replies);
        requester.createProducer(requests).send(request);

        Session responder = Talk.session(connections.open());
        Message question = Talk.next(responder.createConsumer(requests));
        TextMessage response = responder.createTextMessage("answer");
        response.setJMSCorrelationID(question.getJMSMessageID());
        responder.createProducer(question.getJMSReplyTo()).send(response);

        Message answer = Talk.next(answers);
        Expect.equal("the answer", "answer", Talk.text(answer));
        Expect.equal("its correlation-id", request.getJMSMessageID(), answer.getJMSCorrelationID());
        String gone = replies.getQueueName();
        asking.close();
        Talk.refused("a sender to " + gone, NOT_FOUND, () -> responder.createProducer(responder.createQueue(gone)));
    }

    static void temporaryTopic(Connections connections, String p) throws JMSException {
        Connection owner = connections.open();
        Session one = Talk.session(owner);
        TemporaryTopic topic = one.createTemporaryTopic();
        MessageConsumer first = one.createConsumer(topic);
        MessageConsumer second = Talk.session(owner).createConsumer(topic);
        List<String> texts = Talk.numbered("m", 3);
        Talk.send(Talk.session(connections.open()), topic, texts);
        Talk.only("the first", first, texts);
        Talk.only("the second", second, texts);
    }

    /** Without the peer's ANONYMOUS-RELAY Qpid JMS would attach a sender to each address, unseen from here. */
    static void relay(Connections connections, String p) throws JMSException {
        Session session = Talk.session(connections.open());
        MessageProducer producer = session.createProducer(null);
        for (int round = 0; round < 2; round++) {
            for (String address : List.of(p + ".relay1", p + ".relay2")) {
                producer.send(session.createQueue(address), session.createTextMessage(address + " " + round));
            }
        }
        for (String address : List.of(p + ".relay1", p + ".relay2")) {
            MessageConsumer consumer = session.createConsumer(session.createQueue(address));
            Talk.only(address, consumer, List.of(address + " 0", address + " 1"));
        }
    }

    static void queueCapability(Connections connections, String p) throws JMSException {
        Connection connection = connections.open("jms.prefetchPolicy.all=1");
        Session one = Talk.session(connection);
        Queue queue = one.createQueue(p + ".made.queue");
        MessageConsumer first = one.createConsumer(queue);
        MessageConsumer second = Talk.session(connection).createConsumer(queue);
        List<String> texts = Talk.numbered("m", 10);
        Talk.send(Talk.session(connections.open()), queue, texts);
        Talk.divided(first, second, texts);
    }

    static void topicCapability(Connections connections, String p) throws JMSException {
        Session session = Talk.session(connections.open());
        bothGetAll(session, session.createTopic(p + ".made.topic"));
    }

    private static void bothGetAll(Session session, Topic topic) throws JMSException {
        MessageConsumer first = session.createConsumer(topic);
        MessageConsumer second = session.createConsumer(topic);
        List<String> texts = Talk.numbered("m", 10);
        Talk.send(session, topic, texts);
        Talk.only("the first", first, texts);
        Talk.only("the second", second, texts);
    }

    static void prefixes(Connections connections, String p) throws JMSException {
        Session session = Talk.session(connections.open());
        Talk.send(session, session.createQueue("queue://" + p + ".prefixed"), "to the queue");
        MessageConsumer queue = session.createConsumer(session.createQueue(p + ".prefixed"));
        Talk.only(p + ".prefixed", queue, List.of("to the queue"));
        MessageConsumer topic = session.createConsumer(session.createTopic("/" + p + ".news.prefixed"));
        Talk.send(session, session.createTopic("topic://" + p + ".news.prefixed"), "to the topic");
        Talk.only("/" + p + ".news.prefixed", topic, List.of("to the topic"));
    }

    static void topic(Connections connections, String p) throws JMSException {
        Session session = Talk.session(connections.open());
        Topic topic = session.createTopic(p + ".news.all");
        Talk.send(session, topic, "before");
        bothGetAll(session, topic);
    }

    static void wildcard(Connections connections, String p) throws JMSException {
        Session session = Talk.session(connections.open());
        MessageConsumer europe = session.createConsumer(session.createTopic(p + ".news.eu.*"));
        MessageConsumer everything = session.createConsumer(session.createTopic(p + ".news.>"));
        Talk.send(session, session.createTopic(p + ".news.us.ny"), "ny");
        Talk.send(session, session.createTopic(p + ".news.eu.fr"), "fr");
        Talk.only(p + ".news.eu.*", europe, List.of("fr"));
        Talk.only(p + ".news.>", everything, List.of("ny", "fr"));
    }

    static void notFound(Connections connections, String p) throws JMSException {
        Session session = Talk.session(connections.open());
        Queue nowhere = session.createQueue(p + ".closed.nowhere");
        Talk.refused("a sender", NOT_FOUND, () -> session.createProducer(nowhere));
        Talk.refused("a receiver", NOT_FOUND, () -> session.createConsumer(nowhere));
    }
}
