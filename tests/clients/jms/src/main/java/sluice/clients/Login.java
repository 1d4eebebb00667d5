package sluice.clients;

/** How far a client came: what refused it, empty for nothing; `sent` says whether it was to send a message. */
public record Login(boolean entered, boolean sent, String refusal) {
    /** A step of it. */
    public interface Step {
        void run() throws Exception;
    }

    /** Opens a connection and, where there is an address, sends there; tells which of the two was refused. */
    public static Login by(Step open, String address, Step send) {
        try {
            open.run();
        } catch (Exception e) {
            return new Login(false, false, said(e));
        }
        if (address.isEmpty()) {
            return new Login(true, false, "");
        }
        try {
            send.run();
        } catch (Exception e) {
            return new Login(true, true, said(e));
        }
        return new Login(true, true, "");
    }

    private static String said(Exception e) {
        return String.valueOf(e.getCause() == null ? e : e.getCause());
    }
}
