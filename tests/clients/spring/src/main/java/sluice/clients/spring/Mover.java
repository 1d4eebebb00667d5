package sluice.clients.spring;

import jakarta.jms.ConnectionFactory;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.boot.autoconfigure.condition.ConditionalOnProperty;
import org.springframework.boot.autoconfigure.jms.DefaultJmsListenerContainerFactoryConfigurer;
import org.springframework.context.annotation.Bean;
import org.springframework.jms.config.DefaultJmsListenerContainerFactory;
import org.springframework.jms.connection.JmsTransactionManager;

/** A Spring Boot application that moves messages from `orders` to `invoices`; README.md has its arguments. */
@SpringBootApplication
public class Mover {
    public static void main(String[] arguments) {
        SpringApplication.run(Mover.class, arguments);
    }

    @Bean
    JmsTransactionManager transactionManager(ConnectionFactory factory) {
        return new JmsTransactionManager(factory);
    }

    /** Containers whose transactions are the manager's: a session and a consumer for each message. */
    @Bean
    @ConditionalOnProperty(name = "mover.listener", havingValue = "managed")
    DefaultJmsListenerContainerFactory managed(
            DefaultJmsListenerContainerFactoryConfigurer configurer,
            ConnectionFactory connections,
            JmsTransactionManager transactions) {
        DefaultJmsListenerContainerFactory factory = new DefaultJmsListenerContainerFactory();
        configurer.configure(factory, connections);
        factory.setConnectionFactory(connections);
        factory.setTransactionManager(transactions);
        return factory;
    }
}
