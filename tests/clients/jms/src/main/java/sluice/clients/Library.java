package sluice.clients;

import java.util.List;
import java.util.Map;

/** A client library and the commands it answers; C is what holds a feature's open connections. */
public interface Library<C extends AutoCloseable> {
    /** The steps of a feature, on addresses that begin with the prefix. A failure is thrown. */
    interface Feature<C> {
        void run(C connections, String prefix) throws Exception;
    }

    C connections();

    /** Let in by that mechanism and no other; a message is sent to the address, if there is one. */
    Login login(String mechanism, String user, String password, String address);

    Map<String, Feature<C>> features();

    void sendTypes(String address, List<Case> cases) throws Exception;

    void receiveTypes(String address, int count) throws Exception;

    /** The number of actions done when the time is over. */
    int soak(String prefix, long seconds, long seed) throws Exception;
}
