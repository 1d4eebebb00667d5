package sluice.clients.jms;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import org.apache.qpid.proton.amqp.Binary;
import org.apache.qpid.proton.amqp.Decimal128;
import org.apache.qpid.proton.amqp.Decimal32;
import org.apache.qpid.proton.amqp.Decimal64;
import org.apache.qpid.proton.amqp.DescribedType;
import org.apache.qpid.proton.amqp.Symbol;
import org.apache.qpid.proton.amqp.UnsignedByte;
import org.apache.qpid.proton.amqp.UnsignedInteger;
import org.apache.qpid.proton.amqp.UnsignedLong;
import org.apache.qpid.proton.amqp.UnsignedShort;
import sluice.clients.Notation;
import sluice.clients.NotAvailable;

/** Proton-J's own classes: what Qpid JMS encodes, and hands out where JMS has no class. */
final class ProtonJNotation extends Notation {
    @Override
    protected Object own(String type, JsonElement value) {
        switch (type) {
            case "symbol":
                return Symbol.valueOf(value.getAsString());
            case "binary":
                return new Binary(bytes(value));
            case "ubyte":
                return UnsignedByte.valueOf(value.getAsString());
            case "ushort":
                return UnsignedShort.valueOf(value.getAsString());
            case "uint":
                return UnsignedInteger.valueOf(value.getAsString());
            case "ulong":
                return UnsignedLong.valueOf(value.getAsString());
            default:
                return null;
        }
    }

    @Override
    protected JsonObject ownNotation(Object value) throws NotAvailable {
        if (value instanceof Symbol) {
            return text("symbol", value);
        } else if (value instanceof Binary) {
            ByteBuffer buffer = ((Binary) value).asByteBuffer();
            byte[] bytes = new byte[buffer.remaining()];
            buffer.get(bytes);
            return binary(bytes);
        } else if (value instanceof UnsignedByte) {
            return text("ubyte", value);
        } else if (value instanceof UnsignedShort) {
            return text("ushort", value);
        } else if (value instanceof UnsignedInteger) {
            return text("uint", value);
        } else if (value instanceof UnsignedLong) {
            return text("ulong", ((UnsignedLong) value).bigIntegerValue());
        } else if (value instanceof Decimal32) {
            return text("decimal32", String.format("%08x", ((Decimal32) value).getBits()));
        } else if (value instanceof Decimal64) {
            return text("decimal64", String.format("%016x", ((Decimal64) value).getBits()));
        } else if (value instanceof Decimal128) {
            return text("decimal128", String.format("%032x", new BigInteger(1, ((Decimal128) value).asBytes())));
        } else if (value instanceof DescribedType) {
            JsonObject described = new JsonObject();
            described.add("descriptor", write(((DescribedType) value).getDescriptor()));
            described.add("value", write(((DescribedType) value).getDescribed()));
            return notation("described", described);
        }
        return null;
    }

    @Override
    protected Class<?> ownArrayElement(String type) throws NotAvailable {
        if (type.equals("symbol")) {
            return Symbol.class;
        }
        throw new NotAvailable("no array of " + type + " is made here");
    }

    @Override
    protected String ownArrayType(Class<?> element) {
        return element == Symbol.class ? "symbol" : null;
    }
}
