// Features of addresses and nodes: dynamic ones, relays, capabilities, prefixes, refusals.
package main

import (
	"time"

	"github.com/Azure/go-amqp"
)

func reply(s *scene) {
	requester, responder := s.connect(), s.connect()
	replies := requester.receiverWith("", &amqp.ReceiverOptions{DynamicAddress: true, Credit: 10})
	address := replies.Address()
	if address == "" {
		failf("expected an address of the dynamic queue, came none")
	}
	requests := responder.receiver(s.at("requests"))
	request := text("question")
	request.Properties = &amqp.MessageProperties{ReplyTo: &address, CorrelationID: "number 7"}
	s.sendMessages(requester.sender(s.at("requests")), request)

	asked := s.takeOne(requests)
	if asked.Properties == nil || asked.Properties.ReplyTo == nil {
		failf("expected reply-to %s, came none", address)
	}
	same(*asked.Properties.ReplyTo, address, "reply-to")
	s.accept(requests, asked)
	response := text("answer")
	response.Properties = &amqp.MessageProperties{CorrelationID: asked.Properties.CorrelationID}
	s.sendMessages(responder.sender(*asked.Properties.ReplyTo), response)
	answer := s.takeOne(replies)
	same(body(answer), "answer", "the answer")
	if answer.Properties == nil || answer.Properties.CorrelationID != "number 7" {
		failf("expected correlation-id number 7, came %+v", answer.Properties)
	}
	s.accept(replies, answer)

	requester.close()
	gone(s, "a receiver", func() error { return responder.tryReceiver(address, nil) })
	gone(s, "a sender", func() error { return responder.trySender(address) })
}

// gone holds once attaching is refused with not-found: the broker may hear of the closed connection a little
// later than we attach.
func gone(s *scene, what string, attach func() error) {
	for deadline := time.Now().Add(arrival); ; {
		came := conditionOf(attach())
		if came == amqp.ErrCondNotFound {
			return
		}
		if time.Now().After(deadline) {
			failf("expected %s refused with %s, came %s", what, amqp.ErrCondNotFound, came)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func temporaryTopic(s *scene) {
	p := s.connect()
	options := &amqp.SenderOptions{DynamicAddress: true, TargetCapabilities: []string{"temporary-topic"}}
	sender := p.senderWith("", options)
	first, second := p.receiver(sender.Address()), p.receiver(sender.Address())
	s.send(sender, "news")
	for _, came := range s.gather(2, first, second) {
		sameAll(came, []string{"news"}, "for each receiver")
	}
}

func relay(s *scene) {
	p := s.connect()
	sender := p.sender("") // The library sends no address then, a null target address.
	addresses := []string{s.at("relay1"), s.at("relay2")}
	for _, address := range addresses {
		message := text("to " + address)
		message.Properties = &amqp.MessageProperties{To: &address}
		s.sendMessages(sender, message)
	}
	for _, address := range addresses {
		sameAll(s.gather(1, p.receiver(address))[0], []string{"to " + address}, "at "+address)
	}
}

// made are two receivers with one credit each and a sender, all attached with the capability.
func made(s *scene, address, capability string, credit uint32) (*amqp.Sender, []*amqp.Receiver) {
	p := s.connect()
	options := amqp.ReceiverOptions{SourceCapabilities: []string{capability}}
	receivers := []*amqp.Receiver{p.counted(address, credit, options), p.counted(address, credit, options)}
	return p.senderWith(address, &amqp.SenderOptions{TargetCapabilities: []string{capability}}), receivers
}

func queueCapability(s *scene) {
	sender, receivers := made(s, s.at("made.queue"), "queue", 1)
	bodies := numbered("", 2)
	s.send(sender, bodies...)
	divided(s.gather(2, receivers...), bodies, 1)
}

func topicCapability(s *scene) {
	sender, receivers := made(s, s.at("made.topic"), "topic", 10)
	bodies := numbered("", 2)
	s.send(sender, bodies...)
	for _, came := range s.gather(4, receivers...) {
		sameAll(came, bodies, "for each receiver")
	}
}

func prefixes(s *scene) {
	p := s.connect()
	s.send(p.sender("queue://"+s.at("prefixed")), "to a queue")
	sameAll(s.gather(1, p.receiver(s.at("prefixed")))[0], []string{"to a queue"}, "from the queue")
	subscriber := p.receiver("/" + s.at("news.prefixed"))
	s.send(p.sender("topic://"+s.at("news.prefixed")), "to a topic")
	sameAll(s.gather(1, subscriber)[0], []string{"to a topic"}, "from the topic")
}

func notFound(s *scene) {
	p := s.connect()
	address := s.at("closed.nowhere")
	refused(amqp.ErrCondNotFound, "a receiver", func() error { return p.tryReceiver(address, nil) })
	refused(amqp.ErrCondNotFound, "a sender", func() error { return p.trySender(address) })
}
