package sluice.clients;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/** One case of types.json: a value and the section of a message that carries it. */
public record Case(String name, String section, JsonObject value) {
    private static final List<String> NAMED_SECTIONS =
            List.of("message-annotations", "footer", "message-id", "correlation-id", "data", "sequence");

    public String type() {
        return value.get("type").getAsString();
    }

    public static List<Case> read(Path file) throws IOException {
        JsonArray cases = JsonParser.parseString(Files.readString(file, StandardCharsets.UTF_8)).getAsJsonArray();
        List<Case> read = new ArrayList<>();
        for (JsonElement element : cases) {
            JsonObject one = element.getAsJsonObject();
            read.add(new Case(
                    one.get("name").getAsString(),
                    one.get("section").getAsString(),
                    one.getAsJsonObject("value")));
        }
        return read;
    }

    /** The section a case with this name is in: a receiver knows of a case only its name (the subject). */
    public static String sectionOf(String name) {
        if (name.startsWith("property-")) {
            return "application-properties";
        }
        for (String section : NAMED_SECTIONS) {
            if (name.equals(section) || name.startsWith(section + "-")) {
                return section;
            }
        }
        return "value";
    }
}
