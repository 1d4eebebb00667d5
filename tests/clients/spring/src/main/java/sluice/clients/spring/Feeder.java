package sluice.clients.spring;

import org.springframework.beans.factory.annotation.Value;
import org.springframework.boot.ApplicationArguments;
import org.springframework.boot.ApplicationRunner;
import org.springframework.boot.autoconfigure.condition.ConditionalOnProperty;
import org.springframework.jms.core.JmsTemplate;
import org.springframework.stereotype.Component;
import org.springframework.transaction.annotation.Transactional;

/** Sends `mover.feed` numbers to `orders`, a hundred in each transaction. */
@Component
@ConditionalOnProperty(name = "mover.feed")
class Feeder implements ApplicationRunner {
    private static final int BATCH = 100;

    private final Batches batches;
    private final int count;

    Feeder(Batches batches, @Value("${mover.feed}") int count) {
        this.batches = batches;
        this.count = count;
    }

    @Override
    public void run(ApplicationArguments arguments) {
        for (int first = 0; first < count; first += BATCH) {
            int last = Math.min(first + BATCH, count);
            try {
                batches.send(first, last, true);
                throw new AssertionError("a batch that fails was sent");
            } catch (IllegalStateException fault) {
                batches.send(first, last, false);
            }
        }
        System.out.println("fed " + count);
    }

    /** One transaction each; one that fails has sent all of its messages before. */
    @Component
    @ConditionalOnProperty(name = "mover.feed")
    static class Batches {
        private final JmsTemplate jms;

        Batches(JmsTemplate jms) {
            this.jms = jms;
        }

        @Transactional
        public void send(int first, int last, boolean fails) {
            for (int number = first; number < last; number++) {
                jms.convertAndSend("orders", Integer.toString(number));
            }
            if (fails) {
                throw new IllegalStateException("the first attempt fails");
            }
        }
    }
}
