package sluice.clients.protonj2;

import java.util.List;
import java.util.Map;
import org.apache.qpid.protonj2.client.AdvancedMessage;
import org.apache.qpid.protonj2.client.Connection;
import org.apache.qpid.protonj2.client.Message;
import org.apache.qpid.protonj2.client.Receiver;
import org.apache.qpid.protonj2.client.Sender;
import org.apache.qpid.protonj2.client.exceptions.ClientException;
import org.apache.qpid.protonj2.types.Binary;
import org.apache.qpid.protonj2.types.messaging.AmqpSequence;
import org.apache.qpid.protonj2.types.messaging.AmqpValue;
import org.apache.qpid.protonj2.types.messaging.Data;
import org.apache.qpid.protonj2.types.messaging.Section;
import org.apache.qpid.protonj2.types.messaging.Section.SectionType;
import sluice.clients.Case;
import sluice.clients.Expect;
import sluice.clients.NotAvailable;
import sluice.clients.Notation;
import sluice.clients.Report;

/** The cases of types.json as messages, and messages as the notation of types.json. */
final class Types {
    private static final Notation NOTATION = new ProtonNotation();
    private static final Map<String, SectionType> BODIES = Map.of(
            "value", SectionType.AmqpValue, "data", SectionType.Data, "sequence", SectionType.AmqpSequence);

    private Types() {}

    static void send(String address, List<Case> cases) throws Exception {
        try (Connections connections = new Connections()) {
            Sender sender = Talk.sender(connections.open(), address);
            for (Case one : cases) {
                try {
                    Object value = NOTATION.read(one.value());
                    AdvancedMessage<Object> message = AdvancedMessage.create();
                    message.subject(one.name());
                    put(message, one.section(), value);
                    sender.send(message).awaitAccepted();
                    Report.sent(one.name());
                } catch (NotAvailable e) {
                    Report.notAvailable(one.name(), e.getMessage());
                }
            }
        }
    }

    private static void put(AdvancedMessage<Object> message, String section, Object value) throws ClientException {
        switch (section) {
            case "value":
                message.addBodySection(new AmqpValue<>(value));
                return;
            case "data":
                message.addBodySection(new Data((Binary) value));
                return;
            case "sequence":
                message.addBodySection(new AmqpSequence<>((List<?>) value));
                return;
            case "application-properties":
                message.property("k", value);
                break;
            case "message-annotations":
                message.annotation("k", value);
                break;
            case "footer":
                message.footer("k", value);
                break;
            case "message-id":
                message.messageId(value);
                break;
            case "correlation-id":
                message.correlationId(value);
                break;
            default:
                throw new IllegalArgumentException(section);
        }
        message.addBodySection(new AmqpValue<>(""));
    }

    static void receive(String address, int count) throws Exception {
        try (Connections connections = new Connections()) {
            Connection connection = connections.open();
            Receiver receiver = Talk.receiver(connection, address);
            for (int i = 0; i < count; i++) {
                Message<?> message = Talk.next(receiver).message();
                String name = message.subject();
                try {
                    Report.received(name, NOTATION.write(value(message.toAdvancedMessage(), Case.sectionOf(name))));
                } catch (NotAvailable e) {
                    Report.notAvailable(name, e.getMessage());
                }
            }
        }
    }

    private static Object value(AdvancedMessage<?> message, String section) throws ClientException {
        switch (section) {
            case "application-properties":
                return message.property("k");
            case "message-annotations":
                return message.annotation("k");
            case "footer":
                return message.footer("k");
            case "message-id":
                return message.messageId();
            case "correlation-id":
                return message.correlationId();
            default:
                Section<?> body = message.bodySections().iterator().next();
                Expect.equal("the body's section", BODIES.get(section), body.getType());
                return body instanceof Data ? ((Data) body).getBinary() : body.getValue();
        }
    }
}
