package sluice.clients.spring;

import jakarta.jms.JMSException;
import jakarta.jms.Message;

/** The exceptions of every listener: the message's number decides. */
final class Work {
    private Work() {}

    /** One in a hundred always fails; one in ten fails until it comes again. */
    static void check(Message message) throws JMSException {
        int number = Integer.parseInt(message.getBody(String.class));
        if (number % 100 == 7) {
            throw new IllegalStateException("always: " + number);
        }
        if (number % 10 == 3 && !message.getJMSRedelivered()) {
            throw new IllegalStateException("once: " + number);
        }
    }
}
