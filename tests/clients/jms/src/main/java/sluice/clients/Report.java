package sluice.clients;

import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;

/** The JSON lines on standard output; nothing else is ever written there. */
public final class Report {
    private static final Gson GSON = new GsonBuilder().disableHtmlEscaping().serializeNulls().create();
    private static final PrintStream OUT =
            new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);

    private Report() {}

    public static void feature(String name, String result, String why) {
        JsonObject line = new JsonObject();
        line.addProperty("feature", name);
        line.addProperty("result", result);
        line.addProperty("why", why);
        print(line);
    }

    /** How many were accepted, how many came, and how many of those came again. */
    public static void transferred(int accepted, int received, int again) {
        JsonObject line = new JsonObject();
        line.addProperty("accepted", accepted);
        line.addProperty("received", received);
        line.addProperty("again", again);
        print(line);
    }

    public static void sent(String name) {
        JsonObject line = new JsonObject();
        line.addProperty("name", name);
        line.addProperty("result", "sent");
        print(line);
    }

    public static void received(String name, JsonObject value) {
        JsonObject line = new JsonObject();
        line.addProperty("name", name);
        line.add("value", value);
        print(line);
    }

    public static void notAvailable(String name, String why) {
        JsonObject line = new JsonObject();
        line.addProperty("name", name);
        line.addProperty("result", "n/a");
        line.addProperty("why", why);
        print(line);
    }

    public static void done(int actions) {
        JsonObject line = new JsonObject();
        line.addProperty("done", actions);
        print(line);
    }

    /** Whether it was let in, and its message taken; a refusal says why. */
    public static void login(Login came) {
        JsonObject line = new JsonObject();
        line.addProperty("login", came.entered() ? "accepted" : "refused");
        if (came.sent()) {
            line.addProperty("send", came.refusal().isEmpty() ? "accepted" : "refused");
        }
        line.addProperty("why", came.refusal());
        print(line);
    }

    private static synchronized void print(JsonElement line) {
        OUT.println(GSON.toJson(line));
    }
}
