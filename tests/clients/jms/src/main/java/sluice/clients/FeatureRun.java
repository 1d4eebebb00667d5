package sluice.clients;

import java.util.List;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/** Runs features one after another, each in a thread of its own that has 20 s, and reports each. */
final class FeatureRun<C extends AutoCloseable> {
    private static final long LIMIT_MS = 20_000;
    private static final long CLOSING_MS = 5_000;

    private final Library<C> library;
    private final String prefix;

    FeatureRun(Library<C> library, String prefix) {
        this.library = library;
        this.prefix = prefix;
    }

    void all(List<String> names) {
        for (String name : names) {
            one(name, library.features().get(name));
        }
    }

    private void one(String name, Library.Feature<C> feature) {
        if (feature == null) {
            Report.feature(name, "fail", "no feature of this name is known here");
            return;
        }
        C connections = library.connections();
        FutureTask<Void> steps = new FutureTask<>(() -> {
            feature.run(connections, prefix);
            return null;
        });
        Thread thread = start(name, steps);
        try {
            steps.get(LIMIT_MS, TimeUnit.MILLISECONDS);
            Report.feature(name, "pass", "");
        } catch (TimeoutException e) {
            Report.feature(name, "fail", "not over after 20 s: " + place(thread));
            steps.cancel(true);
        } catch (ExecutionException e) {
            failed(name, e.getCause());
        } catch (InterruptedException e) {
            Report.feature(name, "fail", "interrupted");
        }
        close(connections);
    }

    private static void failed(String name, Throwable cause) {
        if (cause instanceof NotAvailable) {
            Report.feature(name, "n/a", cause.getMessage());
        } else if (cause instanceof AssertionError) {
            Report.feature(name, "fail", cause.getMessage());
        } else if (cause instanceof ExecutionException) {
            failed(name, cause.getCause()); // a future of the library's
        } else {
            Report.feature(name, "fail", cause + " (" + place(cause.getStackTrace()) + ")");
        }
    }

    private void close(C connections) {
        FutureTask<Void> closing = new FutureTask<>(() -> {
            connections.close();
            return null;
        });
        start("closing", closing);
        try {
            closing.get(CLOSING_MS, TimeUnit.MILLISECONDS);
        } catch (TimeoutException | ExecutionException | InterruptedException e) {
            System.err.println("closing: " + e);
        }
    }

    private static Thread start(String name, Runnable task) {
        Thread thread = new Thread(task, name);
        thread.setDaemon(true);
        thread.start();
        return thread;
    }

    private static String place(Thread thread) {
        return place(thread.getStackTrace());
    }

    /** The innermost line of ours that is not a mere wait of the small talk. */
    private static String place(StackTraceElement[] stack) {
        for (StackTraceElement frame : stack) {
            if (frame.getClassName().startsWith("sluice.") && !frame.getClassName().endsWith(".Talk")) {
                return frame.getFileName() + ":" + frame.getLineNumber();
            }
        }
        return "no line of ours";
    }
}
