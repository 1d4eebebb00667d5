// Sends numbered messages and receives them, over a cell whose owner may change.
//
// go-amqp leaves reconnecting to the application: each end dials one member after the other until it has a link
// again, and sends again what had no outcome. With a count of 0 it sends until its standard input ends; with
// SLUICE_PAUSE_MS each of its senders waits so long behind a message. A message is confirmed once the broker has
// settled it, and must not come again then unless it was sent again.
package main

import (
	"context"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/Azure/go-amqp"
)

const (
	transferWindow = 20
	transferEvery  = 20
	receiverCredit = 100
	redialAfter    = 100 * time.Millisecond
	dialWithin     = 3 * time.Second
	idleAfter      = 5 * time.Second
	outcomeWithin  = 10 * time.Second
)

type transfer struct {
	urls           []string
	address        string
	count          int
	pause          time.Duration
	mutex          sync.Mutex
	member         int
	next           int
	left           []int
	sentAgain      map[int]bool
	accepted       int
	received       map[int]bool
	confirmed      map[int]bool
	again          int
	confirmedAgain int
}

func runTransfer(urls, address string, count int) error {
	pauseMs, _ := strconv.Atoi(os.Getenv("SLUICE_PAUSE_MS"))
	t := &transfer{
		urls: strings.Split(urls, ","), address: address, count: count, next: 1,
		pause:     time.Duration(pauseMs) * time.Millisecond,
		sentAgain: map[int]bool{}, received: map[int]bool{}, confirmed: map[int]bool{},
	}
	if count == 0 {
		go t.readInput()
	}
	go t.untilDone(t.receive, t.hasAll)
	t.untilDone(t.send, t.hasSentAll)
	// A receiver that has all may still wait for a message: the process ends with it.
	for !t.hasAll() {
		time.Sleep(redialAfter)
	}
	t.mutex.Lock()
	defer t.mutex.Unlock()
	return t.say()
}

// readInput sends no new number once standard input has ended.
func (t *transfer) readInput() {
	io.Copy(io.Discard, os.Stdin)
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.count = t.next - 1
}

func (t *transfer) hasAll() bool {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	return t.count > 0 && len(t.received) == t.count
}

func (t *transfer) hasSentAll() bool {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	return t.count > 0 && t.accepted == t.count
}

func (t *transfer) say() error {
	return lines.Encode(map[string]int{
		"accepted": t.accepted, "received": len(t.received), "again": t.again, "confirmed_again": t.confirmedAgain,
	})
}

// untilDone gives work a session on one member after the other.
func (t *transfer) untilDone(work func(*amqp.Session), done func() bool) {
	for !done() {
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
	t.member++
	return t.urls[t.member%len(t.urls)]
}

func (t *transfer) take() (int, bool) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if last := len(t.left) - 1; last >= 0 {
		number := t.left[last]
		t.left = t.left[:last]
		return number, true
	}
	if t.count > 0 && t.next > t.count {
		return 0, false
	}
	t.next++
	return t.next - 1, true
}

func (t *transfer) settle(number int, isAccepted bool) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if !isAccepted {
		t.left = append(t.left, number)
		t.sentAgain[number] = true
		return
	}
	t.accepted++
	if t.accepted%transferEvery == 0 {
		t.say()
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
	time.Sleep(t.pause)
	return err == nil
}

func (t *transfer) receive(session *amqp.Session) {
	ctx, cancel := context.WithTimeout(context.Background(), dialWithin)
	second := amqp.ReceiverSettleModeSecond
	receiver, err := session.NewReceiver(
		ctx, t.address, &amqp.ReceiverOptions{Credit: receiverCredit, SettlementMode: &second})
	cancel()
	for err == nil && !t.hasAll() {
		// A member that vanished says nothing: the connection's idle time-out ends this.
		var message *amqp.Message
		if message, err = receiver.Receive(context.Background(), nil); err != nil {
			return
		}
		number, problem := strconv.Atoi(string(message.GetData()))
		if problem != nil {
			return
		}
		t.noteReceived(number)
		go t.confirm(receiver, message, number)
	}
}

func (t *transfer) noteReceived(number int) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if t.received[number] {
		t.again++
	}
	if t.confirmed[number] && !t.sentAgain[number] {
		t.confirmedAgain++
	}
	t.received[number] = true
}

// confirm accepts a message, and waits for the broker's settlement.
func (t *transfer) confirm(receiver *amqp.Receiver, message *amqp.Message, number int) {
	ctx, cancel := context.WithTimeout(context.Background(), outcomeWithin)
	defer cancel()
	if receiver.AcceptMessage(ctx, message) != nil {
		return
	}
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.confirmed[number] = true
}
