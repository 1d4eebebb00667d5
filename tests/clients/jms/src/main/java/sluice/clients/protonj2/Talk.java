package sluice.clients.protonj2;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import org.apache.qpid.protonj2.client.Connection;
import org.apache.qpid.protonj2.client.Delivery;
import org.apache.qpid.protonj2.client.Message;
import org.apache.qpid.protonj2.client.Receiver;
import org.apache.qpid.protonj2.client.ReceiverOptions;
import org.apache.qpid.protonj2.client.Sender;
import org.apache.qpid.protonj2.client.SenderOptions;
import org.apache.qpid.protonj2.client.Tracker;
import org.apache.qpid.protonj2.client.exceptions.ClientException;
import org.apache.qpid.protonj2.client.exceptions.ClientResourceRemotelyClosedException;
import sluice.clients.Expect;

/** What features say over a connection: send texts, take texts, hear nothing, be refused. */
final class Talk {
    static final long SOON_MS = 5_000;
    static final long SILENCE_MS = 500;

    private Talk() {}

    static List<String> numbered(String name, int count) {
        return IntStream.range(0, count).mapToObj(i -> name + i).toList();
    }

    /** A receiver that accepts what it is given and keeps ten credits open. */
    static Receiver receiver(Connection connection, String address) throws Exception {
        return receiver(connection, address, new ReceiverOptions());
    }

    static Receiver receiver(Connection connection, String address, ReceiverOptions options) throws Exception {
        return connection.openReceiver(address, options).openFuture().get();
    }

    /** No credit but what is added, no outcome but what is said. */
    static ReceiverOptions manual() {
        return new ReceiverOptions().creditWindow(0).autoAccept(false).autoSettle(false);
    }

    static Sender sender(Connection connection, String address) throws Exception {
        return sender(connection, address, new SenderOptions());
    }

    static Sender sender(Connection connection, String address, SenderOptions options) throws Exception {
        return connection.openSender(address, options).openFuture().get();
    }

    static void send(Connection connection, String address, String... texts) throws Exception {
        send(connection, address, List.of(texts));
    }

    static void send(Connection connection, String address, List<String> texts) throws Exception {
        Sender sender = sender(connection, address);
        send(sender, texts);
        sender.close();
    }

    /** Returns once all are accepted. */
    static void send(Sender sender, List<String> texts) throws ClientException {
        List<Tracker> sent = new ArrayList<>();
        for (String text : texts) {
            sent.add(sender.send(Message.create(text)));
        }
        for (Tracker tracker : sent) {
            tracker.awaitAccepted(SOON_MS, TimeUnit.MILLISECONDS);
        }
    }

    static Delivery next(Receiver receiver) throws ClientException {
        Delivery delivery = receiver.receive(SOON_MS, TimeUnit.MILLISECONDS);
        Expect.that(delivery != null, "a message within " + SOON_MS + " ms", "none");
        return delivery;
    }

    static Object text(Delivery delivery) throws ClientException {
        return delivery == null ? null : delivery.message().body();
    }

    static Object nextText(Receiver receiver) throws ClientException {
        return text(next(receiver));
    }

    /** The next texts, as many as come, at most `count`. */
    static List<Object> take(Receiver receiver, int count) throws ClientException {
        List<Object> texts = new ArrayList<>();
        while (texts.size() < count) {
            Delivery delivery = receiver.receive(SOON_MS, TimeUnit.MILLISECONDS);
            if (delivery == null) {
                break;
            }
            texts.add(text(delivery));
        }
        return texts;
    }

    /** Exactly these come, in this order, and nothing after them. */
    static void only(String who, Receiver receiver, List<String> texts) throws ClientException {
        Expect.equal(who + " gets", texts, take(receiver, texts.size()));
        silent(who, receiver);
    }

    static void silent(String who, Receiver receiver) throws ClientException {
        Delivery delivery = receiver.receive(SILENCE_MS, TimeUnit.MILLISECONDS);
        Expect.equal(who + " gets within " + SILENCE_MS + " ms", null, text(delivery));
    }

    /** Each of the texts comes to one of the two, once; both get some. Their credit must be small. */
    static void divided(Receiver one, Receiver other, List<String> texts) throws ClientException {
        List<String> first = new ArrayList<>();
        List<String> second = new ArrayList<>();
        long end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(SOON_MS);
        while (first.size() + second.size() < texts.size() && System.nanoTime() < end) {
            add(first, one.receive(100, TimeUnit.MILLISECONDS));
            add(second, other.receive(100, TimeUnit.MILLISECONDS));
        }
        add(first, one.receive(SILENCE_MS, TimeUnit.MILLISECONDS));
        add(second, other.receive(SILENCE_MS, TimeUnit.MILLISECONDS));
        List<String> both = new ArrayList<>(first);
        both.addAll(second);
        both.sort(null);
        Expect.equal("the two get together", texts.stream().sorted().toList(), both);
        Expect.that(!first.isEmpty() && !second.isEmpty(), "both to get some", first + " and " + second);
    }

    private static void add(List<String> texts, Delivery delivery) throws ClientException {
        if (delivery != null) {
            texts.add(String.valueOf(text(delivery)));
        }
    }

    static void refused(String what, String condition, Callable<?> attempt) throws Exception {
        try {
            attempt.call();
        } catch (ExecutionException e) {
            Expect.that(e.getCause() instanceof ClientResourceRemotelyClosedException, what + " refused", e.getCause());
            var error = ((ClientResourceRemotelyClosedException) e.getCause()).getErrorCondition();
            Expect.equal(what + " refused with", condition, error == null ? null : error.condition());
            return;
        }
        throw Expect.failure(what + " refused with " + condition, "no refusal");
    }
}
