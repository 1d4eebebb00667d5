package sluice.clients.protonj2;

import java.util.List;
import java.util.concurrent.TimeUnit;
import org.apache.qpid.protonj2.client.Connection;
import org.apache.qpid.protonj2.client.Receiver;
import org.apache.qpid.protonj2.client.Sender;
import org.apache.qpid.protonj2.client.SenderOptions;
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
}
