package sluice.clients.jms;

import jakarta.jms.BytesMessage;
import jakarta.jms.JMSException;
import jakarta.jms.MapMessage;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageFormatException;
import jakarta.jms.MessageProducer;
import jakarta.jms.ObjectMessage;
import jakarta.jms.Session;
import jakarta.jms.StreamMessage;
import jakarta.jms.TextMessage;
import java.io.Serializable;
import java.util.Enumeration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.qpid.proton.amqp.Binary;
import sluice.clients.Case;
import sluice.clients.NotAvailable;
import sluice.clients.Notation;
import sluice.clients.Report;

/** The cases of types.json as JMS messages, and messages as the notation of types.json. */
final class Types {
    private static final Notation NOTATION = new ProtonJNotation();
    private static final String TYPED = "JMS_AMQP_TYPED_ENCODING"; // an ObjectMessage without Java's serialization
    private static final Set<String> TYPED_OBJECTS = Set.of("null", "list", "map", "array");
    private static final Set<String> PROPERTIES =
            Set.of("null", "boolean", "byte", "short", "int", "long", "float", "double", "char", "string");
    private static final Map<String, String> ID_PREFIXES = Map.of(
            "ulong", "ID:AMQP_ULONG:", "uuid", "ID:AMQP_UUID:", "binary", "ID:AMQP_BINARY:", "string", "ID:AMQP_NO_PREFIX:");

    private Types() {}

    static void send(String address, List<Case> cases) throws JMSException {
        try (Connections connections = new Connections()) {
            GivenIds ids = new GivenIds();
            Session session = Talk.session(connections.openWithIds(ids));
            MessageProducer producer = session.createProducer(session.createQueue(address));
            for (Case one : cases) {
                try {
                    Message message = message(session, one, ids);
                    message.setJMSType(one.name()); // the subject
                    producer.send(message);
                    Report.sent(one.name());
                } catch (NotAvailable e) {
                    Report.notAvailable(one.name(), e.getMessage());
                }
            }
        }
    }

    private static Message message(Session session, Case one, GivenIds ids) throws JMSException, NotAvailable {
        switch (one.section()) {
            case "value":
                return body(session, one);
            case "data":
                BytesMessage data = session.createBytesMessage();
                data.writeBytes(Notation.bytes(one.value().get("value")));
                return data;
            case "sequence":
                throw new NotAvailable("a StreamMessage holds no list within the list");
            case "application-properties":
                return withProperty(session.createTextMessage(""), one);
            case "message-id":
                ids.next(NOTATION.read(one.value()));
                return session.createTextMessage("");
            case "correlation-id":
                Message correlated = session.createTextMessage("");
                correlated.setJMSCorrelationID(correlationId(one));
                return correlated;
            default:
                throw new NotAvailable("JMS has no access to " + one.section());
        }
    }

    private static Message body(Session session, Case one) throws JMSException, NotAvailable {
        if (one.type().equals("string")) {
            return session.createTextMessage(one.value().get("value").getAsString());
        } else if (one.type().equals("binary")) {
            throw new NotAvailable("a BytesMessage is a data section, not an amqp-value");
        } else if (!TYPED_OBJECTS.contains(one.type())) {
            throw new NotAvailable("no JMS message has a single " + one.type() + " as its body");
        }
        ObjectMessage message = session.createObjectMessage();
        message.setBooleanProperty(TYPED, true);
        message.setObject((Serializable) NOTATION.read(one.value()));
        return message;
    }

    private static Message withProperty(Message message, Case one) throws JMSException, NotAvailable {
        if (!PROPERTIES.contains(one.type())) {
            throw new NotAvailable("no JMS property is a " + one.type());
        }
        message.setObjectProperty("k", NOTATION.read(one.value()));
        return message;
    }

    private static String correlationId(Case one) {
        String value = one.value().get("value").getAsString();
        return one.type().equals("string") ? value : ID_PREFIXES.get(one.type()) + value;
    }

    static void receive(String address, int count) throws JMSException {
        try (Connections connections = new Connections()) {
            Session session = Talk.session(connections.open());
            MessageConsumer consumer = session.createConsumer(session.createQueue(address));
            for (int i = 0; i < count; i++) {
                Message message = Talk.next(consumer);
                String name = message.getJMSType();
                try {
                    Report.received(name, NOTATION.write(value(message, Case.sectionOf(name))));
                } catch (NotAvailable e) {
                    Report.notAvailable(name, e.getMessage());
                }
            }
        }
    }

    private static Object value(Message message, String section) throws JMSException, NotAvailable {
        switch (section) {
            case "value":
            case "data":
            case "sequence":
                return body(message);
            case "application-properties":
                if (!message.propertyExists("k")) {
                    throw new NotAvailable("JMS shows no property k");
                }
                return message.getObjectProperty("k");
            case "message-id":
                return id(message.getJMSMessageID());
            case "correlation-id":
                return id(message.getJMSCorrelationID());
            default:
                throw new NotAvailable("JMS has no access to " + section);
        }
    }

    private static Object id(String text) throws NotAvailable {
        for (Map.Entry<String, String> prefix : ID_PREFIXES.entrySet()) {
            if (text.startsWith(prefix.getValue())) {
                return NOTATION.read(Notation.text(prefix.getKey(), text.substring(prefix.getValue().length())));
            }
        }
        return text;
    }

    private static Object body(Message message) throws JMSException, NotAvailable {
        if (message instanceof TextMessage) {
            return ((TextMessage) message).getText();
        } else if (message instanceof BytesMessage) {
            byte[] bytes = new byte[(int) ((BytesMessage) message).getBodyLength()];
            ((BytesMessage) message).readBytes(bytes);
            return new Binary(bytes);
        } else if (message instanceof MapMessage) {
            return map((MapMessage) message);
        } else if (message instanceof ObjectMessage) {
            return object((ObjectMessage) message);
        } else if (message instanceof StreamMessage) {
            throw new NotAvailable("a StreamMessage, which no case is");
        }
        throw new NotAvailable("a message without a body: " + message.getClass().getName());
    }

    private static Object object(ObjectMessage message) throws JMSException, NotAvailable {
        try {
            return message.getObject();
        } catch (MessageFormatException e) {
            throw new NotAvailable("an ObjectMessage gives only what is Serializable, and this isn't");
        }
    }

    private static Map<Object, Object> map(MapMessage message) throws JMSException {
        Map<Object, Object> map = new LinkedHashMap<>();
        Enumeration<?> names = message.getMapNames();
        while (names.hasMoreElements()) {
            String name = (String) names.nextElement();
            map.put(name, message.getObject(name));
        }
        return map;
    }
}
