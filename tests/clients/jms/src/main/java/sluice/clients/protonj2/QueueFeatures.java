package sluice.clients.protonj2;

import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.qpid.protonj2.client.Connection;
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

/** Features of queues: what is sent, held back, taken, given back, looked at and chosen. */
final class QueueFeatures {
    private static final Symbol SELECTOR = Symbol.valueOf("apache.org:selector-filter:string");

    private QueueFeatures() {}

    static void sendReceive(Connections connections, String p) throws Exception {
        Connection connection = connections.open();
        List<String> texts = Talk.numbered("m", 100);
        Talk.send(connection, p + ".plain", texts);
        Receiver receiver = Talk.receiver(connection, p + ".plain");
        Expect.equal("the receiver gets", texts, Talk.take(receiver, texts.size()));
        receiver.close();
        Talk.silent("the next receiver", Talk.receiver(connection, p + ".plain"));
    }

    static void presettled(Connections connections, String p) throws Exception {
        Connection connection = connections.open();
        List<String> texts = Talk.numbered("m", 100);
        Sender sender = Talk.sender(
                connection, p + ".presettled", new SenderOptions().deliveryMode(DeliveryMode.AT_MOST_ONCE));
        for (String text : texts) {
            Tracker tracker = sender.send(Message.create(text));
            Expect.equal("settled by the sender", true, tracker.settled());
        }
        Receiver receiver = Talk.receiver(
                connection, p + ".presettled", new ReceiverOptions().deliveryMode(DeliveryMode.AT_MOST_ONCE));
        for (String text : texts) {
            Delivery delivery = Talk.next(receiver);
            Expect.equal("the receiver gets", text, Talk.text(delivery));
            Expect.equal("settled by the broker", true, delivery.remoteSettled());
        }
        Talk.silent("the receiver", receiver);
    }

    static void blocked(Connections connections, String p) throws Exception {
        Sender sender = Talk.sender(connections.open(), p + ".small");
        Talk.send(sender, Talk.numbered("m", 10));
        CompletableFuture<String> eleventh = CompletableFuture.supplyAsync(() -> outcome(sender, "m10"));
        try {
            String outcome = eleventh.get(Talk.SILENCE_MS, TimeUnit.MILLISECONDS);
            throw Expect.failure("no outcome of the eleventh within " + Talk.SILENCE_MS + " ms", outcome);
        } catch (TimeoutException e) {
            // as it must be
        }
        Receiver receiver = Talk.receiver(connections.open(), p + ".small", new ReceiverOptions().creditWindow(0));
        receiver.addCredit(7);
        Talk.take(receiver, 7);
        Expect.equal("the eleventh's outcome", "accepted", eleventh.get(Talk.SOON_MS, TimeUnit.MILLISECONDS));
    }

    private static String outcome(Sender sender, String text) {
        try {
            sender.send(Message.create(text)).awaitAccepted();
            return "accepted";
        } catch (ClientException e) {
            return e.toString();
        }
    }

    static void credit(Connections connections, String p) throws Exception {
        Connection connection = connections.open();
        List<String> texts = Talk.numbered("m", 10);
        Talk.send(connection, p + ".credit", texts);
        Receiver first = Talk.receiver(connection, p + ".credit", Talk.manual());
        first.addCredit(3);
        Talk.only("the first", first, texts.subList(0, 3));
        Receiver other = Talk.receiver(connections.open(), p + ".credit", Talk.manual());
        other.addCredit(10);
        Talk.only("the other", other, texts.subList(3, 10));
    }

    static void outcomes(Connections connections, String p) throws Exception {
        Connection connection = connections.open();
        Receiver receiver = Talk.receiver(connection, p + ".outcomes", new ReceiverOptions().autoAccept(false));

        Talk.send(connection, p + ".outcomes", "released");
        Talk.next(receiver).release();
        Delivery again = Talk.next(receiver);
        Expect.equal("again", "released", Talk.text(again));
        Expect.equal("delivery-count", 0L, again.message().deliveryCount());
        again.accept();

        Talk.send(connection, p + ".outcomes", "rejected");
        Talk.next(receiver).reject("amqp:internal-error", "not wanted");
        Talk.silent("the receiver, after a rejection,", receiver);

        Talk.send(connection, p + ".outcomes", "modified");
        Talk.next(receiver).modified(true, false);
        Delivery failed = Talk.next(receiver);
        Expect.equal("again", "modified", Talk.text(failed));
        Expect.equal("delivery-count", 1L, failed.message().deliveryCount());
        failed.accept();
    }

    static void redelivery(Connections connections, String p) throws Exception {
        Connection closing = connections.open();
        Talk.send(closing, p + ".redelivery", "again");
        Receiver receiver = Talk.receiver(closing, p + ".redelivery", new ReceiverOptions().autoAccept(false));
        Expect.equal("delivery-count at first", 0L, Talk.next(receiver).message().deliveryCount());
        closing.close();
        Delivery again = Talk.next(Talk.receiver(connections.open(), p + ".redelivery"));
        Expect.equal("the next receiver's message", "again", Talk.text(again));
        Expect.equal("delivery-count", 1L, again.message().deliveryCount());
    }

    static void acknowledge(Connections connections, String p) throws Exception {
        Connection connection = connections.open();
        List<String> texts = Talk.numbered("m", 5);
        Talk.send(connection, p + ".ack", texts);
        Receiver receiver = Talk.receiver(connection, p + ".ack", Talk.manual());
        receiver.addCredit(5);
        Delivery[] taken = new Delivery[5];
        for (int i = 0; i < taken.length; i++) {
            taken[i] = Talk.next(receiver);
            Expect.equal("the receiver gets", texts.get(i), Talk.text(taken[i]));
        }
        for (Delivery delivery : taken) {
            delivery.accept();
        }
        receiver.close();
        Talk.silent("the next receiver", Talk.receiver(connection, p + ".ack"));
    }

    static void browse(Connections connections, String p) throws Exception {
        Connection connection = connections.open();
        List<String> texts = Talk.numbered("m", 5);
        Talk.send(connection, p + ".browse", texts);
        for (String time : List.of("the browser", "the second browser")) {
            ReceiverOptions options = new ReceiverOptions();
            options.sourceOptions().distributionMode(DistributionMode.COPY);
            Receiver browser = Talk.receiver(connection, p + ".browse", options);
            Talk.only(time, browser, texts);
            browser.close();
        }
        Talk.only("a consumer afterwards", Talk.receiver(connection, p + ".browse"), texts);
    }

    static void selector(Connections connections, String p) throws Exception {
        Connection connection = connections.open();
        Sender sender = Talk.sender(connection, p + ".selected");
        coloured(sender, "red", 5);
        coloured(sender, "red", 20);
        coloured(sender, "blue", 20);
        coloured(sender, "red", 11);
        Receiver chosen = Talk.receiver(connection, p + ".selected", selected("colour = 'red' AND weight > 10"));
        Talk.only("the receiver with a selector", chosen, List.of("red 20", "red 11"));
        chosen.close();
        Talk.only("the one without", Talk.receiver(connection, p + ".selected"), List.of("red 5", "blue 20"));
    }

    private static void coloured(Sender sender, String colour, int weight) throws ClientException {
        Message<String> message = Message.create(colour + " " + weight);
        message.property("colour", colour).property("weight", weight);
        sender.send(message).awaitAccepted();
    }

    private static ReceiverOptions selected(String expression) {
        ReceiverOptions options = new ReceiverOptions();
        options.sourceOptions().addFilter("jms-selector", SELECTOR, expression);
        return options;
    }

    static void badSelector(Connections connections, String p) throws Exception {
        Connection connection = connections.open();
        Talk.refused("the selector", "amqp:invalid-field",
                () -> Talk.receiver(connection, p + ".selected", selected("colour = = 3")));
    }

    static void exclusive(Connections connections, String p) throws Exception {
        Talk.receiver(connections.open(), p + ".exclusive");
        Connection other = connections.open();
        Talk.refused("the second receiver", "amqp:resource-locked", () -> Talk.receiver(other, p + ".exclusive"));
    }

    static void singleActive(Connections connections, String p) throws Exception {
        Connection connection = connections.open();
        Receiver first = Talk.receiver(connection, p + ".single");
        Receiver second = Talk.receiver(connections.open(), p + ".single");
        Talk.send(connection, p + ".single", Talk.numbered("m", 5));
        Talk.only("the first", first, Talk.numbered("m", 5));
        Talk.silent("the second, while the first is open,", second);
        first.close();
        Talk.send(connection, p + ".single", Talk.numbered("n", 5));
        Talk.only("the second", second, Talk.numbered("n", 5));
    }

    static void expiry(Connections connections, String p) throws Exception {
        Connection connection = connections.open();
        Sender sender = Talk.sender(connection, p + ".expiry");
        sender.send(Message.create("short").timeToLive(200)).awaitAccepted();
        Thread.sleep(600);
        Receiver receiver = Talk.receiver(connection, p + ".expiry");
        Talk.silent("the receiver after 600 ms", receiver);
        Talk.send(sender, List.of("lasting"));
        Expect.equal("without ttl", "lasting", Talk.nextText(receiver));
    }

    static void priority(Connections connections, String p) throws Exception {
        Connection connection = connections.open();
        Receiver receiver = Talk.receiver(connection, p + ".priority");
        Sender sender = Talk.sender(connection, p + ".priority");
        sender.send(Message.create("7").priority((byte) 7)).awaitAccepted();
        Expect.equal("priority", (byte) 7, Talk.next(receiver).message().priority());
        Talk.send(sender, List.of("4"));
        Expect.equal("priority", (byte) 4, Talk.next(receiver).message().priority());
    }

    static void large(Connections connections, String p) throws Exception {
        Connection connection = connections.open();
        byte[] sent = new byte[20 << 20];
        new Random(20).nextBytes(sent);
        Talk.sender(connection, p + ".large").send(Message.create(sent)).awaitAccepted();
        Delivery delivery = Talk.receiver(connection, p + ".large").receive(4 * Talk.SOON_MS, TimeUnit.MILLISECONDS);
        Expect.that(delivery != null, "the message", "none");
        byte[] received = (byte[]) delivery.message().body();
        Expect.equal("length", sent.length, received.length);
        Expect.that(Arrays.equals(sent, received), "the same bytes", "others");
    }
}
