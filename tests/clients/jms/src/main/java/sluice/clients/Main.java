package sluice.clients;

import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import sluice.clients.jms.Jms;
import sluice.clients.jms.Transfer;
import sluice.clients.protonj2.Protonj2;

/** The commands of tests/clients/README.md, spoken by Qpid JMS or, after `--client protonj2`, by Protonj2. */
public final class Main {
    private static final String USAGE = "[--client jms|protonj2] "
            + "features PREFIX NAME... | send-types ADDRESS FILE | receive-types ADDRESS COUNT | soak PREFIX SECONDS SEED"
            + " | login MECHANISM [ADDRESS] | transfer ADDRESS COUNT";

    private Main() {}

    public static void main(String[] arguments) {
        int status = 0;
        try {
            List<String> words = Arrays.asList(arguments);
            boolean named = words.size() >= 2 && words.get(0).equals("--client");
            run(library(named ? words.get(1) : "jms"), words.subList(named ? 2 : 0, words.size()));
        } catch (Exception | AssertionError e) {
            e.printStackTrace();
            status = 1;
        }
        System.exit(status); // a hung feature's threads must not keep the program
    }

    private static Library<?> library(String name) {
        switch (name) {
            case "jms":
                return new Jms();
            case "protonj2":
                return new Protonj2();
            default:
                throw new IllegalArgumentException(USAGE);
        }
    }

    private static <C extends AutoCloseable> void run(Library<C> library, List<String> words) throws Exception {
        if ((words.size() == 2 || words.size() == 3) && words.get(0).equals("login")) {
            String user = System.getenv("LOGIN_USER");
            String address = words.size() == 3 ? words.get(2) : "";
            Report.login(library.login(words.get(1), user, System.getenv("LOGIN_PASSWORD"), address));
            return;
        }
        if (words.size() == 3 && words.get(0).equals("transfer")) {
            Transfer.run(words.get(1), Integer.parseInt(words.get(2)));
            return;
        }
        if (words.size() < 3) {
            throw new IllegalArgumentException(USAGE);
        }
        switch (words.get(0)) {
            case "features":
                new FeatureRun<>(library, words.get(1)).all(words.subList(2, words.size()));
                break;
            case "send-types":
                library.sendTypes(words.get(1), Case.read(Path.of(words.get(2))));
                break;
            case "receive-types":
                library.receiveTypes(words.get(1), Integer.parseInt(words.get(2)));
                break;
            case "soak":
                Report.done(library.soak(words.get(1), Long.parseLong(words.get(2)), Long.parseLong(words.get(3))));
                break;
            default:
                throw new IllegalArgumentException(USAGE);
        }
    }
}
