package sluice.clients;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonNull;
import com.google.gson.JsonObject;
import com.google.gson.JsonPrimitive;
import java.lang.reflect.Array;
import java.util.ArrayList;
import java.util.Date;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;

/**
 * Values between the notation of types.json and a library's Java objects.
 *
 * <p>Here are the types every Java library maps to the JDK's classes. A library's own classes (the unsigned
 * numbers, symbol, binary, the decimals, described types) are its subclass's.
 */
public abstract class Notation {
    private static final String CHAR_IS_SHORT =
            "the library holds an AMQP char (32 bits, a code point) in a Java char (16 bits)";
    private static final HexFormat HEX = HexFormat.of();

    /** The library's object for a type of its own; null when it has none. */
    protected abstract Object own(String type, JsonElement value) throws NotAvailable;

    /** The notation of a library's own object; null when it isn't one. */
    protected abstract JsonObject ownNotation(Object value) throws NotAvailable;

    /** A subclass says otherwise where its library has more than one AMQP type in a Long. */
    protected JsonObject longNotation(Long value) throws NotAvailable {
        return text("long", value);
    }

    /** The Java class whose arrays the library encodes as an AMQP array of this type. */
    protected abstract Class<?> ownArrayElement(String type) throws NotAvailable;

    /** The AMQP type of an array whose elements are of this class of the library; null when it isn't one. */
    protected abstract String ownArrayType(Class<?> element);

    public final Object read(JsonObject notation) throws NotAvailable {
        return read(notation.get("type").getAsString(), notation.get("value"));
    }

    private Object read(String type, JsonElement value) throws NotAvailable {
        switch (type) {
            case "null":
                return null;
            case "boolean":
                return value.getAsBoolean();
            case "byte":
                return Byte.valueOf(value.getAsString());
            case "short":
                return Short.valueOf(value.getAsString());
            case "int":
                return Integer.valueOf(value.getAsString());
            case "long":
                return Long.valueOf(value.getAsString());
            case "float":
                return Float.intBitsToFloat(Integer.parseUnsignedInt(value.getAsString(), 16));
            case "double":
                return Double.longBitsToDouble(Long.parseUnsignedLong(value.getAsString(), 16));
            case "char":
                return character(Integer.parseInt(value.getAsString()));
            case "timestamp":
                return new Date(Long.parseLong(value.getAsString()));
            case "uuid":
                return UUID.fromString(value.getAsString());
            case "string":
                return value.getAsString();
            case "list":
                return readList(value.getAsJsonArray());
            case "map":
                return readMap(value.getAsJsonArray());
            case "array":
                return readArray(value.getAsJsonObject());
            default:
                Object own = own(type, value);
                if (own == null) {
                    throw new NotAvailable("the library has no class for " + type);
                }
                return own;
        }
    }

    private static Character character(int codePoint) throws NotAvailable {
        if (codePoint > Character.MAX_VALUE) {
            throw new NotAvailable(CHAR_IS_SHORT);
        }
        return (char) codePoint;
    }

    private List<Object> readList(JsonArray values) throws NotAvailable {
        List<Object> list = new ArrayList<>();
        for (JsonElement value : values) {
            list.add(read(value.getAsJsonObject()));
        }
        return list;
    }

    private Map<Object, Object> readMap(JsonArray pairs) throws NotAvailable {
        Map<Object, Object> map = new LinkedHashMap<>();
        for (JsonElement pair : pairs) {
            JsonArray entry = pair.getAsJsonArray();
            map.put(read(entry.get(0).getAsJsonObject()), read(entry.get(1).getAsJsonObject()));
        }
        return map;
    }

    private Object readArray(JsonObject notation) throws NotAvailable {
        String type = notation.get("of").getAsString();
        JsonArray values = notation.getAsJsonArray("values");
        Object array = Array.newInstance(type.equals("int") ? int.class : ownArrayElement(type), values.size());
        for (int i = 0; i < values.size(); i++) {
            Array.set(array, i, read(type, values.get(i)));
        }
        return array;
    }

    public final JsonObject write(Object value) throws NotAvailable {
        if (value == null) {
            return notation("null", JsonNull.INSTANCE);
        } else if (value instanceof Boolean) {
            return notation("boolean", new JsonPrimitive((Boolean) value));
        } else if (value instanceof Byte) {
            return text("byte", value);
        } else if (value instanceof Short) {
            return text("short", value);
        } else if (value instanceof Integer) {
            return text("int", value);
        } else if (value instanceof Long) {
            return longNotation((Long) value);
        } else if (value instanceof Float) {
            return text("float", HEX.toHexDigits(Float.floatToRawIntBits((Float) value)));
        } else if (value instanceof Double) {
            return text("double", HEX.toHexDigits(Double.doubleToRawLongBits((Double) value)));
        } else if (value instanceof Character) {
            throw new NotAvailable(CHAR_IS_SHORT);
        } else if (value instanceof Date) {
            return text("timestamp", ((Date) value).getTime());
        } else if (value instanceof UUID) {
            return text("uuid", value);
        } else if (value instanceof String) {
            return text("string", value);
        } else if (value instanceof List) {
            return notation("list", writeList((List<?>) value));
        } else if (value instanceof Map) {
            return notation("map", writeMap((Map<?, ?>) value));
        } else if (value.getClass().isArray()) {
            return notation("array", writeArray(value));
        }
        JsonObject own = ownNotation(value);
        if (own == null) {
            throw new NotAvailable("the library gave a " + value.getClass().getName());
        }
        return own;
    }

    private JsonArray writeList(List<?> list) throws NotAvailable {
        JsonArray values = new JsonArray();
        for (Object value : list) {
            values.add(write(value));
        }
        return values;
    }

    private JsonArray writeMap(Map<?, ?> map) throws NotAvailable {
        JsonArray pairs = new JsonArray();
        for (Map.Entry<?, ?> entry : map.entrySet()) {
            JsonArray pair = new JsonArray();
            pair.add(write(entry.getKey()));
            pair.add(write(entry.getValue()));
            pairs.add(pair);
        }
        return pairs;
    }

    private JsonObject writeArray(Object array) throws NotAvailable {
        Class<?> element = array.getClass().getComponentType();
        String type = element == int.class || element == Integer.class ? "int" : ownArrayType(element);
        if (type == null) {
            throw new NotAvailable("the library gave an array of " + element.getName());
        }
        JsonArray values = new JsonArray();
        for (int i = 0; i < Array.getLength(array); i++) {
            values.add(write(Array.get(array, i)).get("value"));
        }
        JsonObject notation = new JsonObject();
        notation.addProperty("of", type);
        notation.add("values", values);
        return notation;
    }

    protected static JsonObject notation(String type, JsonElement value) {
        JsonObject notation = new JsonObject();
        notation.addProperty("type", type);
        notation.add("value", value);
        return notation;
    }

    public static JsonObject text(String type, Object value) {
        return notation(type, new JsonPrimitive(value.toString()));
    }

    public static JsonObject binary(byte[] bytes) {
        return text("binary", HEX.formatHex(bytes));
    }

    public static byte[] bytes(JsonElement hex) {
        return HEX.parseHex(hex.getAsString());
    }
}
