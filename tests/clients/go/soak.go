// Random legal things, from a seeded generator, until the time is over; then whatever is open is closed.
//
// Only what the broker may always do is forgiven: not to send, and not to give an outcome, in the time we wait.
package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/Azure/go-amqp"
)

const (
	soakPeers = 4
	soakLinks = 6 // of each direction on one connection
	soakHeld  = 50
	patience  = 20 * time.Millisecond // for a message that may not come
	outcomeIn = 2 * time.Second
	answerIn  = 15 * time.Second // for what the broker has to answer
)

// soaker is one run. slots are the containers, one connection each at most, so that a durable subscription has
// one place where it can be attached.
type soaker struct {
	scene  *scene
	random *rand.Rand
	slots  [soakPeers]*soakPeer
	kept   map[string]subscribed // durable subscriptions that weren't closed yet, by container and link name
}

type subscribed struct{ container, name, address string }

type soakPeer struct {
	peer      *peer
	container string
	senders   []*amqp.Sender
	receivers []*soakReceiver
}

type soakReceiver struct {
	link   *amqp.Receiver
	manual bool
	kept   string // its key in soaker.kept
	held   []*amqp.Message
}

func soak(prefix string, seconds float64, seed uint64) error {
	done := 0
	err := openly(func(s *scene) {
		s.prefix = prefix
		k := &soaker{scene: s, random: rand.New(rand.NewPCG(seed, 0)), kept: map[string]subscribed{}}
		for until := time.Now().Add(time.Duration(seconds * float64(time.Second))); time.Now().Before(until); done++ {
			k.act()
		}
		k.finish()
	})
	if err != nil {
		return err
	}
	return lines.Encode(map[string]int{"done": done})
}

// act does one thing. What it draws may not be possible just now; then it connects or does nothing.
func (k *soaker) act() {
	slot := k.random.IntN(soakPeers)
	if k.slots[slot] == nil {
		k.slots[slot] = k.connect(slot)
		return
	}
	p := k.slots[slot]
	switch drawn := k.random.IntN(1000); {
	case drawn < 60:
		k.attachSender(p)
	case drawn < 140:
		k.attachReceiver(p)
	case drawn < 480:
		k.send(p)
	case drawn < 740:
		k.receive(p)
	case drawn < 920:
		k.settle(p)
	case drawn < 940:
		k.drain(p)
	case drawn < 960:
		k.closeSender(p)
	case drawn < 980:
		k.closeReceiver(p)
	case drawn < 988:
		p.peer.end()
		p.peer.begin()
		p.forget()
	case drawn < 994:
		hold(p.peer.conn.Close(), "a closed connection")
		k.slots[slot] = nil
	default: // without a word
		_ = p.peer.socket.Close()
		k.slots[slot] = nil
	}
}

func (k *soaker) connect(slot int) *soakPeer {
	container := fmt.Sprintf("%s-go-soak-%d", k.scene.prefix, slot)
	return &soakPeer{peer: k.scene.connectAs(container), container: container}
}

func (p *soakPeer) forget() { p.senders, p.receivers = nil, nil }

func pick[T any](random *rand.Rand, from []T) (int, T, bool) {
	var none T
	if len(from) == 0 {
		return 0, none, false
	}
	index := random.IntN(len(from))
	return index, from[index], true
}

func without[T any](from []T, index int) []T { return append(from[:index:index], from[index+1:]...) }

func (k *soaker) queue() string { return k.scene.at(fmt.Sprintf("soak%d", k.random.IntN(4))) }
func (k *soaker) topic() string { return k.scene.at(fmt.Sprintf("news.soak%d", k.random.IntN(3))) }

func (k *soaker) attachSender(p *soakPeer) {
	if len(p.senders) == soakLinks {
		return
	}
	address, options := k.queue(), &amqp.SenderOptions{}
	if k.random.IntN(3) == 0 {
		address = k.topic()
	}
	switch k.random.IntN(4) {
	case 0:
		options.SettlementMode = amqp.SenderSettleModeSettled.Ptr()
	case 1:
		options.SettlementMode = amqp.SenderSettleModeUnsettled.Ptr()
	}
	p.senders = append(p.senders, p.peer.senderWith(address, options))
}

func (k *soaker) attachReceiver(p *soakPeer) {
	if len(p.receivers) == soakLinks {
		return
	}
	address, options, made := k.queue(), &amqp.ReceiverOptions{}, &soakReceiver{}
	switch k.random.IntN(6) {
	case 0:
		options.SourceDistributionMode = amqp.SourceDistributionModeCopy
	case 1:
		address = k.topic()
	case 2:
		name := fmt.Sprintf("sub%d", k.random.IntN(3))
		address, options = k.scene.at("news.soak"+name[3:]), subscription(name)
		made.kept = p.container + " " + name
		for _, each := range p.receivers {
			if each.kept == made.kept {
				return // A connection's link names are its own.
			}
		}
		k.kept[made.kept] = subscribed{p.container, name, address}
	case 3:
		options.RequestedSenderSettleMode = amqp.SenderSettleModeSettled.Ptr()
	case 4:
		address, options.DynamicAddress = "", true
	}
	options.Credit = int32(1 + k.random.IntN(20))
	if k.random.IntN(3) == 0 {
		options.Credit, made.manual = -1, true
	}
	made.link = p.peer.receiverWith(address, options)
	p.receivers = append(p.receivers, made)
}

func (k *soaker) send(p *soakPeer) {
	_, sender, found := pick(k.random, p.senders)
	if !found {
		return
	}
	message := &amqp.Message{Header: &amqp.MessageHeader{
		Durable:  k.random.IntN(2) == 0,
		Priority: uint8(k.random.IntN(10)),
	}}
	if k.random.IntN(4) == 0 {
		message.Header.TTL = time.Duration(1+k.random.IntN(1000)) * time.Millisecond
	}
	size := k.random.IntN(300)
	if k.random.IntN(20) == 0 {
		size = k.random.IntN(200_000)
	}
	message.Data = [][]byte{make([]byte, size)}
	message.ApplicationProperties = map[string]any{"number": int32(k.random.IntN(100))}
	ctx, cancel := context.WithTimeout(k.scene.ctx, outcomeIn)
	defer cancel()
	err := sender.Send(ctx, message, nil)
	// Without credit the library says this of its own, once our time is over.
	var blocked *amqp.Error
	if errors.As(err, &blocked) && blocked.Condition == amqp.ErrCondTransferLimitExceeded && ctx.Err() != nil {
		return
	}
	forgive(err, "an outcome")
}

func (k *soaker) receive(p *soakPeer) {
	_, receiver, found := pick(k.random, p.receivers)
	if !found || len(receiver.held) > soakHeld {
		return
	}
	if receiver.manual && k.random.IntN(3) == 0 {
		hold(receiver.link.IssueCredit(uint32(1+k.random.IntN(10))), "credit to give")
	}
	message, err := receiveWithin(k.scene.ctx, receiver.link, patience)
	forgive(err, "a message")
	if err == nil {
		receiver.held = append(receiver.held, message)
	}
}

func (k *soaker) settle(p *soakPeer) {
	_, receiver, found := pick(k.random, p.receivers)
	if !found {
		return
	}
	index, message, found := pick(k.random, receiver.held)
	if !found {
		return
	}
	ctx, link := k.scene.ctx, receiver.link
	var err error
	switch k.random.IntN(10) {
	case 0:
		err = link.ReleaseMessage(ctx, message)
	case 1:
		err = link.RejectMessage(ctx, message, &amqp.Error{Condition: amqp.ErrCondInternalError})
	case 2:
		err = link.RejectMessage(ctx, message, nil)
	case 3:
		err = link.ModifyMessage(ctx, message, &amqp.ModifyMessageOptions{DeliveryFailed: true})
	case 4:
		err = link.ModifyMessage(ctx, message, &amqp.ModifyMessageOptions{
			UndeliverableHere: true,
			Annotations:       amqp.Annotations{"x-opt-soak": int32(1)},
		})
	default:
		err = link.AcceptMessage(ctx, message)
	}
	hold(err, "to settle")
	receiver.held = without(receiver.held, index)
}

func (k *soaker) drain(p *soakPeer) {
	_, receiver, found := pick(k.random, p.receivers)
	if !found || !receiver.manual {
		return
	}
	ctx, cancel := context.WithTimeout(k.scene.ctx, answerIn)
	defer cancel()
	hold(receiver.link.DrainCredit(ctx, nil), "drained credit")
}

func (k *soaker) closeSender(p *soakPeer) {
	index, sender, found := pick(k.random, p.senders)
	if !found {
		return
	}
	ctx, cancel := context.WithTimeout(k.scene.ctx, answerIn)
	defer cancel()
	hold(sender.Close(ctx), "a closed sender")
	p.senders = without(p.senders, index)
}

func (k *soaker) closeReceiver(p *soakPeer) {
	index, receiver, found := pick(k.random, p.receivers)
	if !found {
		return
	}
	ctx, cancel := context.WithTimeout(k.scene.ctx, answerIn)
	defer cancel()
	hold(receiver.link.Close(ctx), "a closed receiver")
	delete(k.kept, receiver.kept)
	p.receivers = without(p.receivers, index)
}

// finish closes every link, unsubscribes what is still subscribed, and leaves.
func (k *soaker) finish() {
	for slot, p := range k.slots {
		if p == nil {
			p = k.connect(slot)
		}
		for len(p.senders) > 0 {
			k.closeSender(p)
		}
		for len(p.receivers) > 0 {
			k.closeReceiver(p)
		}
		for key, each := range k.kept {
			if each.container == p.container {
				receiver := p.peer.receiverWith(each.address, subscription(each.name))
				p.receivers = append(p.receivers, &soakReceiver{link: receiver, kept: key})
				k.closeReceiver(p)
			}
		}
		p.peer.end()
		hold(p.peer.conn.Close(), "a closed connection")
	}
}

// forgive forgets that nothing came within our own time.
func forgive(err error, expected string) {
	if !errors.Is(err, context.DeadlineExceeded) {
		hold(err, expected)
	}
}
