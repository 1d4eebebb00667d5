package sluice.clients;

import java.util.Objects;

/** What must hold: a failure names what was expected and what came. */
public final class Expect {
    private Expect() {}

    public static void equal(String what, Object expected, Object came) {
        if (!Objects.equals(expected, came)) {
            throw new AssertionError("expected " + what + " " + expected + ", came " + came);
        }
    }

    public static void that(boolean holds, String expected, Object came) {
        if (!holds) {
            throw new AssertionError("expected " + expected + ", came " + came);
        }
    }

    public static AssertionError failure(String expected, Object came) {
        return new AssertionError("expected " + expected + ", came " + came);
    }
}
