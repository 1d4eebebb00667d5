package sluice.clients.jms;

import org.apache.qpid.jms.JmsDestination;
import org.apache.qpid.jms.JmsSession;
import org.apache.qpid.jms.message.JmsMessageIDBuilder;
import org.apache.qpid.jms.policy.JmsMessageIDPolicy;

/** Message ids that the program chooses; JMS lets a provider alone choose, Qpid JMS asks this policy. */
final class GivenIds implements JmsMessageIDPolicy, JmsMessageIDBuilder {
    private Object next;

    /** The id of the next message that is sent; those after it are counted. */
    void next(Object id) {
        next = id;
    }

    @Override
    public Object createMessageID(String producerId, long messageSequence) {
        Object id = next == null ? "ID:" + producerId + "-" + messageSequence : next;
        next = null;
        return id;
    }

    @Override
    public JmsMessageIDBuilder initialize(String producerId) {
        return this;
    }

    @Override
    public JmsMessageIDPolicy copy() {
        return this;
    }

    @Override
    public JmsMessageIDBuilder getMessageIDBuilder(JmsSession session, JmsDestination destination) {
        return this;
    }
}
