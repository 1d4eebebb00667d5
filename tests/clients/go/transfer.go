// Sends numbered messages and receives them, over a cell whose owner may change.
//
// go-amqp leaves reconnecting to the application: each end dials one member after the other until it has a link
// again, and sends again what had no outcome.
package main

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/Azure/go-amqp"
)

const (
	transferWindow = 20
	transferEvery  = 100
	redialAfter    = 100 * time.Millisecond
	dialWithin     = 3 * time.Second
	idleAfter      = 5 * time.Second
	outcomeWithin  = 10 * time.Second
)

type transfer struct {
	urls     []string
	address  string
	count    int
	mutex    sync.Mutex
	next     int
	left     []int
	accepted int
	received map[int]bool
	again    int
}

func runTransfer(urls, address string, count int) error {
	t := &transfer{urls: strings.Split(urls, ","), address: address, count: count, received: map[int]bool{}}
	for number := count; number > 0; number-- {
		t.left = append(t.left, number)
	}
	var ends sync.WaitGroup
	ends.Add(2)
	go func() { defer ends.Done(); t.untilDone(t.send, func() bool { return t.accepted == count }) }()
	go func() { defer ends.Done(); t.untilDone(t.receive, func() bool { return len(t.received) == count }) }()
	ends.Wait()
	return t.say()
}

func (t *transfer) say() error {
	return lines.Encode(map[string]int{"accepted": t.accepted, "received": len(t.received), "again": t.again})
}

// untilDone gives work a session on one member after the other.
func (t *transfer) untilDone(work func(*amqp.Session), done func() bool) {
	finished := func() bool {
		t.mutex.Lock()
		defer t.mutex.Unlock()
		return done()
	}
	for !finished() {
		ctx, cancel := context.WithTimeout(context.Background(), dialWithin)
		conn, err := amqp.Dial(ctx, t.url(), &amqp.ConnOptions{IdleTimeout: idleAfter})
		if err == nil {
			session, err := conn.NewSession(ctx, nil)
			if err == nil {
				work(session)
			}
			conn.Close()
		}
		cancel()
		time.Sleep(redialAfter)
	}
}

func (t *transfer) url() string {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.next++
	return t.urls[t.next%len(t.urls)]
}

func (t *transfer) take() (int, bool) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if len(t.left) == 0 {
		return 0, false
	}
	number := t.left[len(t.left)-1]
	t.left = t.left[:len(t.left)-1]
	return number, true
}

func (t *transfer) settle(number int, isAccepted bool) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if !isAccepted {
		t.left = append(t.left, number)
		return
	}
	t.accepted++
	if t.accepted%transferEvery == 0 {
		lines.Encode(map[string]int{"accepted": t.accepted, "received": 0, "again": 0})
	}
}

// send has some messages under way at a time, and returns once one of them fails or none is left.
func (t *transfer) send(session *amqp.Session) {
	ctx, cancel := context.WithTimeout(context.Background(), dialWithin)
	sender, err := session.NewSender(ctx, t.address, nil)
	cancel()
	if err != nil {
		return
	}
	var workers sync.WaitGroup
	for range transferWindow {
		workers.Add(1)
		go func() {
			defer workers.Done()
			for t.sendOne(sender) {
			}
		}()
	}
	workers.Wait()
}

func (t *transfer) sendOne(sender *amqp.Sender) bool {
	number, found := t.take()
	if !found {
		return false
	}
	message := amqp.NewMessage([]byte(strconv.Itoa(number)))
	message.Header = &amqp.MessageHeader{Durable: true}
	ctx, cancel := context.WithTimeout(context.Background(), outcomeWithin)
	defer cancel()
	err := sender.Send(ctx, message, nil)
	t.settle(number, err == nil)
	return err == nil
}

func (t *transfer) receive(session *amqp.Session) {
	ctx, cancel := context.WithTimeout(context.Background(), dialWithin)
	receiver, err := session.NewReceiver(ctx, t.address, &amqp.ReceiverOptions{Credit: 100})
	cancel()
	for err == nil && len(t.received) < t.count {
		// A member that vanished says nothing: the connection's idle time-out ends this.
		var message *amqp.Message
		if message, err = receiver.Receive(context.Background(), nil); err != nil {
			return
		}
		number, problem := strconv.Atoi(string(message.GetData()))
		if problem != nil {
			return
		}
		t.mutex.Lock()
		if t.received[number] {
			t.again++
		}
		t.received[number] = true
		t.mutex.Unlock()
		ctx, cancel := context.WithTimeout(context.Background(), outcomeWithin)
		err = receiver.AcceptMessage(ctx, message)
		cancel()
	}
}
