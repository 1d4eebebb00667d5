package sluice.clients;

import java.util.List;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;

/**
 * Random legal actions of a seeded generator until the time is over.
 *
 * <p>An action that throws ends it: what an action does itself to make a call fail, it must catch itself.
 */
public abstract class Soak {
    /** One thing done; it may find nothing to do. */
    protected interface Action {
        void run() throws Exception;
    }

    protected static final int QUEUES = 6;
    protected static final int TOPICS = 3;

    protected final String prefix;
    protected final Random random;
    private final AtomicReference<Throwable> unexpected = new AtomicReference<>();

    protected Soak(String prefix, long seed) {
        this.prefix = prefix;
        this.random = new Random(seed);
    }

    /** An action is in here as often as it is likelier than others. */
    protected abstract List<Action> actions();

    protected abstract void closeAll() throws Exception;

    public final int run(long seconds) throws Exception {
        List<Action> actions = actions();
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(seconds);
        int done = 0;
        while (System.nanoTime() < end) {
            any(actions).run();
            done++;
            if (unexpected.get() != null) {
                throw new IllegalStateException("a connection failed by itself", unexpected.get());
            }
        }
        closeAll();
        return done;
    }

    /** Called by any thread when something failed that nobody here did. */
    protected final void failed(Throwable cause) {
        unexpected.compareAndSet(null, cause);
    }

    protected final <T> T any(List<T> choices) {
        return choices.get(random.nextInt(choices.size()));
    }

    protected final boolean chance(int percent) {
        return random.nextInt(100) < percent;
    }

    protected final String queueName() {
        return prefix + ".soak." + random.nextInt(QUEUES);
    }

    protected final String topicName() {
        return prefix + ".news.soak." + random.nextInt(TOPICS);
    }

    /** A topic, or now and then a pattern for all of them, which several cells refuse. */
    protected final String topicOrPattern() {
        return chance(30) && !"refused".equals(System.getenv("PATTERNS")) ? prefix + ".news.soak.*" : topicName();
    }

    protected final String text() {
        return "x".repeat(chance(5) ? 100_000 : random.nextInt(2_000));
    }
}
