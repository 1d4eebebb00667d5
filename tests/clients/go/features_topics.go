// Features of topics: who gets what is published, and what a subscription keeps.
package main

import "github.com/Azure/go-amqp"

// noLocalFilter is apache.org:no-local-filter:list of the registered filters.
const (
	noLocalFilter     = "apache.org:no-local-filter:list"
	noLocalFilterCode = 0x0000468C00000003
)

func topic(s *scene) {
	p := s.connect()
	sender := p.sender(s.at("news.all"))
	s.send(sender, "too early")
	first, second := p.receiver(s.at("news.all")), p.receiver(s.at("news.all"))
	bodies := numbered("", 10)
	s.send(sender, bodies...)
	for _, came := range s.gather(20, first, second) {
		sameAll(came, bodies, "for each receiver")
	}
}

func wildcard(s *scene) {
	p := s.connect()
	europe, all := p.receiver(s.at("news.eu.*")), p.receiver(s.at("news.>"))
	s.send(p.sender(s.at("news.eu.fr")), "france")
	s.send(p.sender(s.at("news.us.ny")), "new york")
	found := s.gather(3, europe, all)
	sameAll(found[0], []string{"france"}, "for news.eu.*")
	sameAll(found[1], []string{"france", "new york"}, "for news.>")
}

// subscription are the options of a durable subscriber's receiver; its link bears the subscription's name.
func subscription(name string, capabilities ...string) *amqp.ReceiverOptions {
	return &amqp.ReceiverOptions{
		Name:               name,
		Credit:             100,
		SourceCapabilities: capabilities,
		SourceDurability:   amqp.DurabilityUnsettledState,
		SourceExpiryPolicy: amqp.ExpiryPolicyNever,
	}
}

func durableSubscription(s *scene) {
	address, container, name := s.at("news.durable"), s.prefix+"-durable", s.prefix+"-sub"
	sender := s.connect().sender(address)

	p := s.connectAs(container)
	receiver := p.receiverWith(address, subscription(name))
	s.send(sender, "while attached")
	message := s.takeOne(receiver)
	same(body(message), "while attached", "the message")
	s.accept(receiver, message)
	p.leave()

	s.send(sender, numbered("meanwhile", 3)...)
	p = s.connectAs(container)
	receiver = p.receiverWith(address, subscription(name))
	messages := s.take(receiver, 3)
	sameAll(texts(messages), numbered("meanwhile", 3), "what was published meanwhile")
	s.accept(receiver, messages...)
	hold(receiver.Close(s.ctx), "a closed receiver")
	p.leave()

	s.send(sender, "unsubscribed")
	p = s.connectAs(container)
	receiver = p.receiverWith(address, subscription(name))
	s.nothing(receiver)
	hold(receiver.Close(s.ctx), "a closed receiver")
}

// A connection's links may not share a name, so a shared subscription's links bear its name up to the `|`, as in
// the AMQP mapping of JMS.
func sharedSubscription(s *scene) {
	p := s.connectAs(s.prefix + "-shared")
	options := amqp.ReceiverOptions{SourceCapabilities: []string{"shared"}}
	options.Name = s.prefix + "-shared|volatile1"
	first := p.counted(s.at("news.shared"), 5, options)
	options.Name = s.prefix + "-shared|volatile2"
	second := p.counted(s.at("news.shared"), 5, options)
	bodies := numbered("", 10)
	s.send(p.sender(s.at("news.shared")), bodies...)
	divided(s.gather(10, first, second), bodies, 5)
}

func sharedDurable(s *scene) {
	address, container, name := s.at("news.shared"), s.prefix+"-shared-durable", s.prefix+"-shared-sub"
	sender := s.connect().sender(address)
	one, other := s.connectAs(container), s.connectAs(container)
	first := one.counted(address, 5, *subscription(name, "shared"))
	second := other.counted(address, 5, *subscription(name+"|2", "shared"))
	bodies := numbered("", 10)
	s.send(sender, bodies...)
	divided(s.gather(10, first, second), bodies, 5)
	one.leave()
	other.leave()

	s.send(sender, numbered("meanwhile", 3)...)
	p := s.connectAs(container)
	receiver := p.receiverWith(address, subscription(name, "shared"))
	messages := s.take(receiver, 3)
	sameAll(texts(messages), numbered("meanwhile", 3), "what was published meanwhile")
	s.accept(receiver, messages...)
	hold(receiver.Close(s.ctx), "a closed receiver")
}

func noLocal(s *scene) {
	p, another := s.connect(), s.connect()
	options := &amqp.ReceiverOptions{
		Credit:  100,
		Filters: []amqp.LinkFilter{amqp.NewLinkFilter(noLocalFilter, noLocalFilterCode, []any{})},
	}
	receiver := p.receiverWith(s.at("news.local"), options)
	s.send(p.sender(s.at("news.local")), "its own")
	s.send(another.sender(s.at("news.local")), "another's")
	sameAll(s.gather(1, receiver)[0], []string{"another's"}, "what isn't its own")
}
