package sluice.clients.jms;

import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.MessageConsumer;
import jakarta.jms.Session;
import jakarta.jms.Topic;
import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import sluice.clients.Wire;

/** One of the soak's connections and what is open on it. */
final class Peer {
    /** A consumer with a session of its own. */
    record Kept(Session session, MessageConsumer consumer, int mode) {}

    final Connection connection;
    final String clientId; // null: no durable subscriptions
    final Wire wire; // null: it can't be cut
    final Session sending;
    final List<Kept> kept = new ArrayList<>();
    final Map<String, MessageConsumer> durable = new HashMap<>();
    private volatile boolean cut;

    Peer(Connection connection, String clientId, Wire wire) throws JMSException {
        this.connection = connection;
        this.clientId = clientId;
        this.wire = wire;
        this.sending = Talk.session(connection);
    }

    boolean isCut() {
        return cut;
    }

    /** Without a word; what the library says then is of our own making. */
    void cut() throws IOException {
        cut = true;
        wire.close();
        try {
            connection.close();
        } catch (JMSException e) {
            // it is gone
        }
    }

    void close() throws JMSException, IOException {
        connection.close();
        if (wire != null) {
            wire.close();
        }
    }

    void subscribe(Topic topic, String name) throws JMSException {
        durable.put(name, sending.createDurableConsumer(topic, name));
    }

    void detach(String name) throws JMSException {
        durable.remove(name).close();
    }
}
