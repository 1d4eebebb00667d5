package sluice.clients.jms;

import jakarta.jms.JMSException;
import jakarta.jms.MessageConsumer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import java.util.List;
import sluice.clients.Expect;
import sluice.clients.NotAvailable;

/** Features of links and connections themselves. */
final class LinkFeatures {
    private LinkFeatures() {}

    /**
     * receiveNoWait drains when it finds nothing; a consumer whose drain isn't answered is closed by Qpid JMS.
     * One with a prefetch then asks for credit anew, one without keeps none: what is sent then goes elsewhere.
     */
    static void drain(Connections connections, String p) throws JMSException {
        Session session = Talk.session(connections.open("jms.prefetchPolicy.all=10"));
        Queue queue = session.createQueue(p + ".drain");
        List<String> texts = Talk.numbered("m", 3);
        Talk.send(session, queue, texts);
        MessageConsumer ten = session.createConsumer(queue);
        Expect.equal("the receiver gets", texts, Talk.take(ten, 3));
        Expect.equal("the drain ends with", null, Talk.text(ten.receiveNoWait()));
        Talk.send(session, queue, "after the drain");
        Expect.equal("the receiver goes on with", "after the drain", Talk.nextText(ten));
        ten.close();

        MessageConsumer pulling = Talk.session(connections.open("jms.prefetchPolicy.all=0")).createConsumer(queue);
        Expect.equal("the drain ends with", null, Talk.text(pulling.receiveNoWait()));
        Talk.send(session, queue, "for another");
        Expect.equal("another receiver gets", "for another", Talk.nextText(session.createConsumer(queue)));
    }

    static void reattach(Connections connections, String p) throws NotAvailable {
        throw new NotAvailable("a JMS producer can only be closed, not detached, and can't name its link");
    }

    /** Half of the option's value is what the open says, so that this asks for 1 s. */
    static void idle(Connections connections, String p) throws Exception {
        Session session = Talk.session(connections.open("amqp.idleTimeout=2000"));
        Queue queue = session.createQueue(p + ".idle");
        MessageConsumer consumer = session.createConsumer(queue);
        Thread.sleep(3000);
        Talk.send(session, queue, "after the silence");
        Expect.equal("the receiver gets", "after the silence", Talk.nextText(consumer));
    }

    static void websocket(Connections connections, String p) throws JMSException {
        Session session = Talk.session(connections.openWebsocket());
        Queue queue = session.createQueue(p + ".websocket");
        List<String> texts = Talk.numbered("m", 10);
        Talk.send(session, queue, texts);
        Talk.only("the receiver", session.createConsumer(queue), texts);
    }
}
