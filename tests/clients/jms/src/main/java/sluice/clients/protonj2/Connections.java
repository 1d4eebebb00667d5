package sluice.clients.protonj2;

import java.net.URI;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Consumer;
import org.apache.qpid.protonj2.client.Client;
import org.apache.qpid.protonj2.client.ClientOptions;
import org.apache.qpid.protonj2.client.Connection;
import org.apache.qpid.protonj2.client.ConnectionOptions;
import org.apache.qpid.protonj2.client.Message;
import org.apache.qpid.protonj2.client.SslOptions;
import org.apache.qpid.protonj2.client.exceptions.ClientException;
import sluice.clients.Login;

/** The open connections of one feature, each a container's only one; all are closed with it. */
public final class Connections implements AutoCloseable {
    private final List<Client> containers = new ArrayList<>();

    public Connection open() throws Exception {
        return open(new ClientOptions(), address("URL"), options());
    }

    public Connection openAs(String containerId) throws Exception {
        return open(new ClientOptions().id(containerId), address("URL"), options());
    }

    /** The open asks for half of this, to be told in time. */
    public Connection openIdle(long idleTimeoutMs) throws Exception {
        return open(new ClientOptions(), address("URL"), options().idleTimeout(idleTimeoutMs));
    }

    public Connection openWebsocket() throws Exception {
        ConnectionOptions options = options();
        options.transportOptions().useWebSockets(true);
        return open(new ClientOptions(), address("WS_URL"), options);
    }

    /** Told of its end when that is nobody's here; port 0 is the broker's own. */
    Connection openWatched(String containerId, int port, Consumer<Throwable> ended) throws Exception {
        ClientOptions container = containerId == null ? new ClientOptions() : new ClientOptions().id(containerId);
        URI address = port == 0 ? address("URL") : URI.create("amqp://127.0.0.1:" + port);
        return open(container, address, options().disconnectedHandler((connection, event) ->
                ended.accept(event.failureCause())));
    }

    /** Opens a connection by one mechanism, and sends a message to an address, if there is one. */
    Login login(String mechanism, String user, String password, String address) {
        ConnectionOptions options = secured(options().user(user).password(password), address("URL"));
        options.saslOptions().addAllowedMechanism(mechanism);
        AtomicReference<Connection> opened = new AtomicReference<>();
        return Login.by(
                () -> opened.set(open(new ClientOptions(), address("URL"), options)),
                address,
                () -> opened.get().openSender(address).openFuture().get().send(Message.create("hello"))
                        .settlementFuture().get());
    }

    /** TLS by the stores that the address names as Qpid JMS's addresses do. */
    private static ConnectionOptions secured(ConnectionOptions options, URI address) {
        if (!"amqps".equals(address.getScheme())) {
            return options;
        }
        SslOptions ssl = options.sslEnabled(true).sslOptions();
        for (String pair : address.getQuery().split("&")) {
            String value = pair.substring(pair.indexOf('=') + 1);
            switch (pair.substring(0, pair.indexOf('='))) {
                case "transport.trustStoreLocation" -> ssl.trustStoreLocation(value);
                case "transport.trustStorePassword" -> ssl.trustStorePassword(value);
                case "transport.trustStoreType" -> ssl.trustStoreType(value);
                case "transport.keyStoreLocation" -> ssl.keyStoreLocation(value);
                case "transport.keyStorePassword" -> ssl.keyStorePassword(value);
                case "transport.keyStoreType" -> ssl.keyStoreType(value);
                default -> throw new IllegalArgumentException(pair);
            }
        }
        return options;
    }

    private static URI address(String variable) {
        String address = System.getenv(variable);
        if (address == null) {
            throw new IllegalStateException(variable + " isn't set");
        }
        return URI.create(address);
    }

    /** No call waits longer than a feature may take. */
    private static ConnectionOptions options() {
        return new ConnectionOptions()
                .openTimeout(15_000).closeTimeout(3_000).requestTimeout(15_000).sendTimeout(15_000).drainTimeout(5_000)
                .traceFrames(Boolean.getBoolean("traceFrames"));
    }

    private synchronized Connection open(ClientOptions container, URI address, ConnectionOptions options)
            throws ClientException, ExecutionException, InterruptedException, TimeoutException {
        Client client = Client.create(container);
        containers.add(client);
        return client.connect(address.getHost(), address.getPort(), options).openFuture().get(15, TimeUnit.SECONDS);
    }

    @Override
    public synchronized void close() {
        for (Client client : containers) {
            client.close();
        }
    }
}
