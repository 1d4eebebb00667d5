package sluice.clients;

import java.io.Closeable;
import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.net.URI;

/** A way for one connection to the broker that can be cut without a word of AMQP. */
public final class Wire implements Closeable {
    private final ServerSocket listening;
    private final URI broker;
    private Socket near;
    private Socket far;

    public Wire() throws IOException {
        broker = URI.create(System.getenv("URL"));
        listening = new ServerSocket(0, 1, InetAddress.getLoopbackAddress());
        start(this::join);
    }

    public int port() {
        return listening.getLocalPort();
    }

    private void join() throws IOException {
        Socket accepted = listening.accept();
        Socket connected = new Socket(broker.getHost(), broker.getPort());
        synchronized (this) {
            near = accepted;
            far = connected;
        }
        start(() -> carry(accepted, connected));
        start(() -> carry(connected, accepted));
    }

    private void carry(Socket from, Socket to) throws IOException {
        from.getInputStream().transferTo(to.getOutputStream());
        close();
    }

    /** Cuts it; a peer's closing does so too. */
    @Override
    public synchronized void close() throws IOException {
        listening.close();
        if (near != null) {
            near.close();
            far.close();
        }
    }

    private interface Work {
        void run() throws IOException;
    }

    private static void start(Work work) {
        Thread thread = new Thread(() -> {
            try {
                work.run();
            } catch (IOException e) {
                // cut, which both ends hear of themselves
            }
        });
        thread.setDaemon(true);
        thread.start();
    }
}
