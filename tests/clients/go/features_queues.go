// Features of queues: what is sent, held, settled and given again.
package main

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/Azure/go-amqp"
)

func sendReceive(s *scene) {
	p := s.connect()
	bodies := numbered("", 100)
	s.send(p.sender(s.at("plain")), bodies...)
	receiver := p.receiver(s.at("plain"))
	messages := s.take(receiver, len(bodies))
	sameAll(texts(messages), bodies, "messages")
	s.accept(receiver, messages...)
	s.nothing(receiver)
}

func presettled(s *scene) {
	p := s.connect()
	bodies := numbered("", 100)
	settled := amqp.SenderSettleModeSettled.Ptr()
	sender := p.senderWith(s.at("presettled"), &amqp.SenderOptions{SettlementMode: settled})
	for _, each := range bodies {
		hold(sender.Send(s.ctx, text(each), nil), "to send")
	}
	options := &amqp.ReceiverOptions{Credit: 100, RequestedSenderSettleMode: settled}
	receiver := p.receiverWith(s.at("presettled"), options)
	sameAll(texts(s.take(receiver, len(bodies))), bodies, "messages")
	p.leave()
	s.nothing(s.connect().receiver(s.at("presettled")))
}

func blocked(s *scene) {
	p := s.connect()
	sender := p.sender(s.at("small"))
	s.send(sender, numbered("", 10)...)
	type outcome struct {
		state amqp.DeliveryState
		err   error
	}
	eleventh := make(chan outcome, 1)
	go func() {
		receipt, err := sender.SendWithReceipt(s.ctx, text("10"), nil)
		if err != nil {
			eleventh <- outcome{err: err}
			return
		}
		state, err := receipt.Wait(s.ctx)
		eleventh <- outcome{state, err}
	}()
	select {
	case came := <-eleventh:
		failf("expected no outcome of the eleventh within %s, came %v %v", quiet, came.state, came.err)
	case <-time.After(quiet):
	}
	receiver := p.counted(s.at("small"), 7, amqp.ReceiverOptions{})
	s.accept(receiver, s.take(receiver, 7)...)
	select {
	case came := <-eleventh:
		hold(came.err, "the eleventh accepted")
		if _, accepted := came.state.(*amqp.StateAccepted); !accepted {
			failf("expected the eleventh accepted, came %v", came.state)
		}
	case <-time.After(arrival):
		failf("expected the eleventh accepted within %s, no outcome came", arrival)
	}
}

func credit(s *scene) {
	p := s.connect()
	bodies := numbered("", 10)
	s.send(p.sender(s.at("credit")), bodies...)
	first := p.receiverWith(s.at("credit"), &amqp.ReceiverOptions{Credit: 3})
	held := s.take(first, 3)
	s.nothing(first)
	second := p.receiverWith(s.at("credit"), &amqp.ReceiverOptions{Credit: 100})
	others := s.take(second, 7)
	s.nothing(second)
	sameAll(append(texts(held), texts(others)...), bodies, "messages")
}

func outcomes(s *scene) {
	p := s.connect()
	sender := p.sender(s.at("outcomes"))
	receiver := p.receiver(s.at("outcomes"))

	s.send(sender, "released")
	hold(receiver.ReleaseMessage(s.ctx, s.takeOne(receiver)), "to release")
	again := s.takeOne(receiver)
	same(body(again), "released", "again the message")
	s.accept(receiver, again)

	s.send(sender, "rejected")
	why := &amqp.Error{Condition: amqp.ErrCondInternalError, Description: "not wanted"}
	hold(receiver.RejectMessage(s.ctx, s.takeOne(receiver), why), "to reject")
	s.nothing(receiver)

	s.send(sender, "modified")
	modified := &amqp.ModifyMessageOptions{DeliveryFailed: true}
	hold(receiver.ModifyMessage(s.ctx, s.takeOne(receiver), modified), "to modify")
	again = s.takeOne(receiver)
	same(body(again), "modified", "again the message")
	same(deliveryCount(again), 1, "delivery-count")
	s.accept(receiver, again)
}

func redelivery(s *scene) {
	p := s.connect()
	s.send(p.sender(s.at("redelivery")), "again")
	message := s.takeOne(p.receiver(s.at("redelivery")))
	same(deliveryCount(message), 0, "delivery-count at first")
	p.close()
	receiver := s.connect().receiver(s.at("redelivery"))
	message = s.takeOne(receiver)
	same(body(message), "again", "the message")
	same(deliveryCount(message), 1, "delivery-count")
	s.accept(receiver, message)
}

func acknowledge(s *scene) {
	p := s.connect()
	bodies := numbered("", 5)
	s.send(p.sender(s.at("ack")), bodies...)
	receiver := p.receiver(s.at("ack"))
	var messages []*amqp.Message
	for range bodies {
		messages = append(messages, s.takeOne(receiver))
	}
	sameAll(texts(messages), bodies, "messages")
	s.accept(receiver, messages...)
	p.leave()
	s.nothing(s.connect().receiver(s.at("ack")))
}

func browse(s *scene) {
	p := s.connect()
	bodies := numbered("", 5)
	s.send(p.sender(s.at("browse")), bodies...)
	for range 2 {
		options := &amqp.ReceiverOptions{Credit: 100, SourceDistributionMode: amqp.SourceDistributionModeCopy}
		browser := p.receiverWith(s.at("browse"), options)
		seen := s.take(browser, len(bodies))
		sameAll(texts(seen), bodies, "messages to see")
		s.accept(browser, seen...)
		s.nothing(browser)
		hold(browser.Close(s.ctx), "a closed browser")
	}
	receiver := p.receiver(s.at("browse"))
	messages := s.take(receiver, len(bodies))
	sameAll(texts(messages), bodies, "messages to consume")
	s.accept(receiver, messages...)
}

func coloured(colour string, weight int32) *amqp.Message {
	message := text(colour)
	message.ApplicationProperties = map[string]any{"colour": colour, "weight": weight}
	return message
}

func selector(s *scene) {
	p := s.connect()
	heavy, light := coloured("red", 20), coloured("red", 5)
	heavy.Value, light.Value = "heavy red", "light red"
	s.sendMessages(p.sender(s.at("selected")), light, heavy, coloured("blue", 20))
	options := &amqp.ReceiverOptions{
		Credit:  100,
		Filters: []amqp.LinkFilter{amqp.NewSelectorFilter("colour = 'red' AND weight > 10")},
	}
	selecting := p.receiverWith(s.at("selected"), options)
	selected := s.takeOne(selecting)
	same(body(selected), "heavy red", "selected")
	s.accept(selecting, selected)
	s.nothing(selecting)
	all := p.receiver(s.at("selected"))
	others := s.take(all, 2)
	sameAll(texts(others), []string{"light red", "blue"}, "others")
	s.accept(all, others...)
}

func badSelector(s *scene) {
	p := s.connect()
	options := &amqp.ReceiverOptions{Filters: []amqp.LinkFilter{amqp.NewSelectorFilter("colour = = 3")}}
	refused(amqp.ErrCondInvalidField, "the selector", func() error {
		return p.tryReceiver(s.at("selected"), options)
	})
}

func exclusive(s *scene) {
	s.connect().receiver(s.at("exclusive"))
	second := s.connect()
	refused(amqp.ErrCondResourceLocked, "a second receiver", func() error {
		return second.tryReceiver(s.at("exclusive"), nil)
	})
}

func singleActive(s *scene) {
	p := s.connect()
	sender := p.sender(s.at("single"))
	first := p.receiver(s.at("single"))
	second := p.receiver(s.at("single"))
	s.send(sender, numbered("early", 5)...)
	found := s.gather(5, first, second)
	sameAll(found[0], numbered("early", 5), "for the first receiver")
	sameAll(found[1], nil, "for the second receiver")
	hold(first.Close(s.ctx), "a closed receiver")
	s.send(sender, numbered("late", 5)...)
	sameAll(s.gather(5, second)[0], numbered("late", 5), "for the second receiver, now active")
}

func expiry(s *scene) {
	p := s.connect()
	brief, lasting := text("brief"), text("lasting")
	brief.Header = &amqp.MessageHeader{Priority: 4, TTL: 200 * time.Millisecond}
	sender := p.sender(s.at("expiry"))
	s.sendMessages(sender, brief)
	time.Sleep(600 * time.Millisecond)
	receiver := p.receiver(s.at("expiry"))
	s.nothing(receiver)
	s.sendMessages(sender, lasting)
	message := s.takeOne(receiver)
	same(body(message), "lasting", "the message")
	s.accept(receiver, message)
}

func priority(s *scene) {
	p := s.connect()
	urgent := text("urgent")
	urgent.Header = &amqp.MessageHeader{Priority: 7}
	s.sendMessages(p.sender(s.at("priority")), urgent, text("usual"))
	receiver := p.receiver(s.at("priority"))
	came := map[string]uint8{}
	for _, message := range s.take(receiver, 2) {
		came[body(message)] = 4 // A header that isn't there means the default (§3.2.1).
		if message.Header != nil {
			came[body(message)] = message.Header.Priority
		}
		s.accept(receiver, message)
	}
	same(came["urgent"], 7, "priority")
	same(came["usual"], 4, "default priority")
}

func large(s *scene) {
	p := s.connect()
	octets := make([]byte, 20<<20)
	if _, err := rand.NewChaCha8([32]byte{20}).Read(octets); err != nil {
		panic(err)
	}
	receiver := p.receiver(s.at("large"))
	s.sendMessages(p.sender(s.at("large")), amqp.NewMessage(octets))
	message, err := receiver.Receive(s.ctx, nil)
	hold(err, "the large message")
	if came := message.GetData(); !bytes.Equal(came, octets) {
		failf("expected the same %d bytes, came %d, some of them others", len(octets), len(came))
	}
	s.accept(receiver, message)
}

func drain(s *scene) {
	p := s.connect()
	sender := p.sender(s.at("drain"))
	s.send(sender, numbered("", 3)...)
	receiver := p.counted(s.at("drain"), 10, amqp.ReceiverOptions{})
	// The library's drain says link-credit 0, which takes back what wasn't used yet: the messages come first.
	messages := s.take(receiver, 3)
	ctx, cancel := context.WithTimeout(s.ctx, arrival)
	defer cancel()
	err := receiver.DrainCredit(ctx, nil)
	if errors.Is(err, context.DeadlineExceeded) {
		failf("expected the broker's answer to flow(link-credit=0, drain=true) within %s, none came", arrival)
	}
	hold(err, "drained credit")
	s.accept(receiver, messages...)
	s.send(sender, "late")
	s.nothing(receiver)
	hold(receiver.IssueCredit(1), "new credit")
	message := s.takeOne(receiver)
	same(body(message), "late", "with new credit")
	s.accept(receiver, message)
}
