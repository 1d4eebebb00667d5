package sluice.clients.protonj2;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.math.BigInteger;
import org.apache.qpid.protonj2.types.Binary;
import org.apache.qpid.protonj2.types.Decimal128;
import org.apache.qpid.protonj2.types.Decimal32;
import org.apache.qpid.protonj2.types.Decimal64;
import org.apache.qpid.protonj2.types.DescribedType;
import org.apache.qpid.protonj2.types.Symbol;
import org.apache.qpid.protonj2.types.UnknownDescribedType;
import org.apache.qpid.protonj2.types.UnsignedByte;
import org.apache.qpid.protonj2.types.UnsignedInteger;
import org.apache.qpid.protonj2.types.UnsignedLong;
import org.apache.qpid.protonj2.types.UnsignedShort;
import sluice.clients.NotAvailable;
import sluice.clients.Notation;

/** Protonj2's own classes for what the JDK has none for. */
final class ProtonNotation extends Notation {
    @Override
    protected Object own(String type, JsonElement value) throws NotAvailable {
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
            case "decimal32":
                return new Decimal32(Integer.parseUnsignedInt(value.getAsString(), 16));
            case "decimal64":
                return new Decimal64(Long.parseUnsignedLong(value.getAsString(), 16));
            case "decimal128":
                return new Decimal128(bytes(value));
            case "described":
                JsonObject described = value.getAsJsonObject();
                return new UnknownDescribedType(
                        read(described.getAsJsonObject("descriptor")), read(described.getAsJsonObject("value")));
            default:
                return null;
        }
    }

    @Override
    protected JsonObject ownNotation(Object value) throws NotAvailable {
        if (value instanceof Symbol) {
            return text("symbol", value);
        } else if (value instanceof Binary) {
            return binary(((Binary) value).asByteArray());
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
    protected JsonObject longNotation(Long value) throws NotAvailable {
        throw new NotAvailable("the library decodes both long and timestamp to a Long");
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
