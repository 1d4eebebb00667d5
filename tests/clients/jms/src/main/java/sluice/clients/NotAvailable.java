package sluice.clients;

/** The library's API lacks what is asked for; the message says what. Reported as "n/a". */
public final class NotAvailable extends Exception {
    private static final long serialVersionUID = 1L;

    public NotAvailable(String why) {
        super(why);
    }
}
