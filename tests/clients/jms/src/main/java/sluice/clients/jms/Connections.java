package sluice.clients.jms;

import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.Session;
import java.net.URI;
import java.util.ArrayList;
import java.util.List;
import org.apache.qpid.jms.JmsConnectionFactory;
import org.apache.qpid.jms.policy.JmsMessageIDPolicy;
import sluice.clients.Login;

/** The started connections of one feature; all are closed with it. Options are Qpid JMS's URI options. */
public final class Connections implements AutoCloseable {
    /** No call waits longer than a feature may take. */
    private static final List<String> LIMITS = List.of(
            "jms.connectTimeout=5000", "jms.closeTimeout=3000", "jms.requestTimeout=15000", "jms.sendTimeout=15000",
            "amqp.drainTimeout=5000");

    private final List<Connection> open = new ArrayList<>();

    public Connection open(String... options) throws JMSException {
        return start(factory(address("URL"), options));
    }

    public Connection openAs(String clientId, String... options) throws JMSException {
        JmsConnectionFactory factory = factory(address("URL"), options);
        factory.setClientID(clientId);
        return start(factory);
    }

    public Connection openWithIds(JmsMessageIDPolicy policy) throws JMSException {
        JmsConnectionFactory factory = factory(address("URL"));
        factory.setMessageIDPolicy(policy);
        return start(factory);
    }

    public Connection openWebsocket() throws JMSException {
        return start(factory("amqp" + address("WS_URL")));
    }

    /** Through another port of this machine. */
    public Connection openThrough(int port, String... options) throws JMSException {
        return start(factory("amqp://127.0.0.1:" + port, options));
    }

    /** Opens a connection by one mechanism, and sends a message to an address, if there is one. */
    Login login(String mechanism, String user, String password, String address) {
        JmsConnectionFactory factory = factory(address("URL"), "amqp.saslMechanisms=" + mechanism);
        return Login.by(
                () -> {
                    open.add(factory.createConnection(user, password));
                    open.get(0).start();
                },
                address,
                () -> {
                    Session session = open.get(0).createSession();
                    session.createProducer(session.createQueue(address)).send(session.createTextMessage("hello"));
                });
    }

    private static String address(String variable) {
        String address = System.getenv(variable);
        if (address == null) {
            throw new IllegalStateException(variable + " isn't set");
        }
        return address;
    }

    private static JmsConnectionFactory factory(String address, String... options) {
        List<String> all = new ArrayList<>(LIMITS);
        all.addAll(List.of(options));
        String more = URI.create(address).getQuery() == null ? "?" : "&";
        return new JmsConnectionFactory(address + more + String.join("&", all));
    }

    private synchronized Connection start(JmsConnectionFactory factory) throws JMSException {
        Connection connection = factory.createConnection();
        open.add(connection);
        connection.start();
        return connection;
    }

    @Override
    public synchronized void close() throws JMSException {
        for (Connection connection : open) {
            connection.close();
        }
    }
}
