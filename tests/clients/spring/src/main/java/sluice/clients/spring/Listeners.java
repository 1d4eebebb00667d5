package sluice.clients.spring;

import jakarta.jms.JMSException;
import jakarta.jms.Message;
import org.springframework.boot.autoconfigure.condition.ConditionalOnProperty;
import org.springframework.jms.annotation.JmsListener;
import org.springframework.jms.core.JmsTemplate;
import org.springframework.messaging.handler.annotation.SendTo;
import org.springframework.stereotype.Component;
import org.springframework.transaction.annotation.Transactional;

/** The listeners, one of which `mover.listener` names. */
final class Listeners {
    private Listeners() {}

    /** Nothing but stock: the container's session sends the method's return value. */
    @Component
    @ConditionalOnProperty(name = "mover.listener", havingValue = "stock")
    static class Stock {
        @JmsListener(destination = "orders", concurrency = "${mover.concurrency:1}")
        @SendTo("invoices")
        String move(Message message) throws JMSException {
            Work.check(message);
            return message.getBody(String.class);
        }
    }

    /** A template whose factory is the container's takes the container's session; it has sent before it fails. */
    @Component
    @ConditionalOnProperty(name = "mover.listener", havingValue = "template")
    static class Template {
        private final JmsTemplate jms;

        Template(JmsTemplate jms) {
            this.jms = jms;
        }

        @JmsListener(destination = "orders", concurrency = "${mover.concurrency:1}")
        void move(Message message) throws JMSException {
            jms.convertAndSend("invoices", message.getBody(String.class));
            Work.check(message);
        }
    }

    /** The same in the transactions of a JmsTransactionManager. */
    @Component
    @ConditionalOnProperty(name = "mover.listener", havingValue = "managed")
    static class Managed {
        private final JmsTemplate jms;

        Managed(JmsTemplate jms) {
            this.jms = jms;
        }

        @Transactional
        @JmsListener(
                destination = "orders",
                containerFactory = "managed",
                concurrency = "${mover.concurrency:1}")
        public void move(Message message) throws JMSException {
            jms.convertAndSend("invoices", message.getBody(String.class));
            Work.check(message);
        }
    }
}
