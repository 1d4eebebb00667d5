package sluice.clients.protonj2;

import java.util.List;
import java.util.concurrent.TimeUnit;
import org.apache.qpid.protonj2.client.Connection;
import org.apache.qpid.protonj2.client.Receiver;
import org.apache.qpid.protonj2.client.Sender;
import org.apache.qpid.protonj2.client.SenderOptions;
import org.apache.qpid.protonj2.client.Session;
import sluice.clients.Expect;

/** Features of links and connections themselves. */
final class LinkFeatures {
    private LinkFeatures() {}

    static void drain(Connections connections, String p) throws Exception {
        Connection connection = connections.open();
        List<String> texts = Talk.numbered("m", 3);
        Talk.send(connection, p + ".drain", texts);
        Receiver receiver = Talk.receiver(connection, p + ".drain", Talk.manual());
        receiver.addCredit(10);
        receiver.drain().get(Talk.SOON_MS, TimeUnit.MILLISECONDS);
        Expect.equal("messages when the drain is over", 3L, receiver.queuedDeliveries());
        Expect.equal("the receiver gets", texts, Talk.take(receiver, 3));
        Talk.send(connection, p + ".drain", "without credit");
        Talk.silent("the receiver, without credit,", receiver);
    }

    static void reattach(Connections connections, String p) throws Exception {
        Connection connection = connections.open();
        SenderOptions options = new SenderOptions().linkName(p + "-reattached");
        Sender before = Talk.sender(connection, p + ".reattach", options);
        Talk.send(before, List.of("before"));
        before.detach();
        Sender after = Talk.sender(connection, p + ".reattach", options);
        Talk.send(after, List.of("after"));
        Talk.only("the receiver", Talk.receiver(connection, p + ".reattach"), List.of("before", "after"));
    }

    static void idle(Connections connections, String p) throws Exception {
        Connection connection = connections.openIdle(2000);
        Receiver receiver = Talk.receiver(connection, p + ".idle");
        Thread.sleep(3000);
        Talk.send(connection, p + ".idle", "after the silence");
        Expect.equal("the receiver gets", "after the silence", Talk.nextText(receiver));
    }

    static void websocket(Connections connections, String p) throws Exception {
        Connection connection = connections.openWebsocket();
        List<String> texts = Talk.numbered("m", 10);
        Talk.send(connection, p + ".websocket", texts);
        Talk.only("the receiver", Talk.receiver(connection, p + ".websocket"), texts);
    }

    /** What a session sends and accepts in a transaction counts with the commit. */
    static void transaction(Connections connections, String p) throws Exception {
        Connection connection = connections.open();
        Session session = connection.openSession().openFuture().get(Talk.SOON_MS, TimeUnit.MILLISECONDS);
        Sender sender = session.openSender(p + ".tx").openFuture().get(Talk.SOON_MS, TimeUnit.MILLISECONDS);
        Receiver other = Talk.receiver(connection, p + ".tx");
        session.beginTransaction();
        Talk.send(sender, List.of("rolled back"));
        session.rollbackTransaction();
        session.beginTransaction();
        Talk.send(sender, List.of("committed"));
        Talk.silent("a receiver before the commit", other);
        session.commitTransaction();
        Talk.only("a receiver after the commit", other, List.of("committed"));
        other.close();
        Receiver receiver = session.openReceiver(p + ".tx").openFuture().get(Talk.SOON_MS, TimeUnit.MILLISECONDS);
        Talk.send(connection, p + ".tx", "taken");
        session.beginTransaction();
        Expect.equal("in a transaction", "taken", Talk.nextText(receiver));
        session.rollbackTransaction();
        receiver.close();
        Receiver again = session.openReceiver(p + ".tx").openFuture().get(Talk.SOON_MS, TimeUnit.MILLISECONDS);
        session.beginTransaction();
        Expect.equal("after the rollback", "taken", Talk.nextText(again));
        session.commitTransaction();
        again.close();
        Talk.silent("a receiver after the commit", Talk.receiver(connection, p + ".tx"));
    }
}
