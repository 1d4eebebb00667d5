package sluice.clients.protonj2;

import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Consumer;
import org.apache.qpid.protonj2.client.Connection;
import org.apache.qpid.protonj2.client.Receiver;
import sluice.clients.Wire;

/** One of the soak's connections and what is open on it. */
final class Peer {
    /** A receiver; by hand: credit is added and outcomes are said for each delivery. */
    record Kept(Receiver receiver, boolean byHand) {}

    final String containerId; // null: no durable subscriptions
    final Connection connection;
    final List<Kept> kept = new ArrayList<>();
    final Map<String, Receiver> durable = new HashMap<>();
    private final Wire wire; // null: it can't be cut
    private volatile boolean over;

    Peer(Connections connections, String containerId, Wire wire, Consumer<Throwable> failed) throws Exception {
        this.containerId = containerId;
        this.wire = wire;
        this.connection = connections.openWatched(containerId, wire == null ? 0 : wire.port(), cause -> {
            if (!over) {
                failed.accept(cause);
            }
        });
    }

    boolean canBeCut() {
        return wire != null;
    }

    /** Without a word; what the library says then is of our own making. */
    void cut() throws IOException {
        over = true;
        wire.close();
        connection.closeAsync();
    }

    void close() throws IOException {
        over = true;
        connection.close();
        if (wire != null) {
            wire.close();
        }
    }
}
