// What every feature is made of: connections of its own, links on them, messages with a text, and failures that
// say what was expected and what came.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"sync"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/coder/websocket"
)

const (
	// arrival is how long something that has to come may take; quiet, how long nothing has to come.
	arrival = 5 * time.Second
	quiet   = 500 * time.Millisecond
)

// failure is what a feature panics with when something doesn't hold.
type failure string

func failf(format string, values ...any) { panic(failure(fmt.Sprintf(format, values...))) }

func hold(err error, expected string) {
	if err != nil {
		failf("expected %s, came: %v", expected, err)
	}
}

func same[T comparable](came, expected T, what string) {
	if came != expected {
		failf("expected %s %v, came %v", what, expected, came)
	}
}

func sameAll[T comparable](came, expected []T, what string) {
	if fmt.Sprint(came) != fmt.Sprint(expected) {
		failf("expected %s %v, came %v", what, expected, came)
	}
}

// scene is one feature's run. note is said beside a pass.
type scene struct {
	ctx    context.Context
	prefix string
	note   string

	lock  sync.Mutex
	peers []*peer
}

func (s *scene) at(address string) string { return s.prefix + "." + address }

// strike closes whatever the feature opened, with a word where the peer still listens.
func (s *scene) strike() {
	s.lock.Lock()
	defer s.lock.Unlock()
	for _, each := range s.peers {
		each.close()
	}
}

// peer is one connection and the session in use on it.
type peer struct {
	scene   *scene
	socket  net.Conn
	conn    *amqp.Conn
	session *amqp.Session
}

func dial(ctx context.Context) (net.Conn, error) {
	broker, err := url.Parse(os.Getenv("URL"))
	if err != nil {
		return nil, err
	}
	if broker.Scheme == "amqps" {
		secured, err := secure(broker.Hostname())
		if err != nil {
			return nil, err
		}
		return (&tls.Dialer{Config: secured}).DialContext(ctx, "tcp", broker.Host)
	}
	return (&net.Dialer{}).DialContext(ctx, "tcp", broker.Host)
}

// secure is TLS that trusts the authority in the file CA and shows the certificate and key in the file CERT.
func secure(host string) (*tls.Config, error) {
	trusted, err := os.ReadFile(os.Getenv("CA"))
	if err != nil {
		return nil, err
	}
	config := &tls.Config{ServerName: host, RootCAs: x509.NewCertPool()}
	config.RootCAs.AppendCertsFromPEM(trusted)
	if file := os.Getenv("CERT"); file != "" {
		own, err := tls.LoadX509KeyPair(file, file)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{own}
	}
	return config, nil
}

func dialWebsocket(ctx context.Context) (net.Conn, error) {
	options := &websocket.DialOptions{Subprotocols: []string{"amqp"}}
	stream, _, err := websocket.Dial(ctx, os.Getenv("WS_URL"), options)
	if err != nil {
		return nil, err
	}
	if stream.Subprotocol() != "amqp" {
		return nil, fmt.Errorf("expected sub-protocol amqp, came %q", stream.Subprotocol())
	}
	return websocket.NetConn(context.Background(), stream, websocket.MessageBinary), nil
}

func (s *scene) connect() *peer { return s.connectWith(dial, amqp.ConnOptions{}) }

func (s *scene) connectAs(container string) *peer {
	return s.connectWith(dial, amqp.ConnOptions{ContainerID: container})
}

func (s *scene) connectWith(way func(context.Context) (net.Conn, error), options amqp.ConnOptions) *peer {
	socket, err := way(s.ctx)
	hold(err, "a connection")
	options.SASLType = amqp.SASLTypeAnonymous()
	if os.Getenv("CERT") != "" {
		options.SASLType = amqp.SASLTypeExternal("")
	}
	made := &peer{scene: s, socket: socket}
	s.lock.Lock()
	s.peers = append(s.peers, made)
	s.lock.Unlock()
	made.conn, err = amqp.NewConn(s.ctx, socket, &options)
	hold(err, "an open connection")
	made.begin()
	return made
}

func (p *peer) begin() {
	var err error
	p.session, err = p.conn.NewSession(p.scene.ctx, nil)
	hold(err, "a session")
}

// end ends the session and waits for the answer: its links are detached, not closed (AMQP 1.0 §2.5.5). This is
// the library's only way to detach without closing, for its own detach says closed each time.
func (p *peer) end() { hold(p.session.Close(p.scene.ctx), "an ended session") }

// close says close where that can still be said; it never waits longer than a second.
func (p *peer) close() {
	said := make(chan struct{})
	go func() {
		if p.conn != nil {
			_ = p.conn.Close()
		}
		close(said)
	}()
	select {
	case <-said:
	case <-time.After(time.Second):
	}
	_ = p.socket.Close()
}

// leave detaches all links without closing them, then closes the connection.
func (p *peer) leave() {
	p.end()
	p.close()
}

func (p *peer) sender(address string) *amqp.Sender { return p.senderWith(address, nil) }

func (p *peer) senderWith(address string, options *amqp.SenderOptions) *amqp.Sender {
	made, err := p.session.NewSender(p.scene.ctx, address, options)
	hold(err, "a sender to "+address)
	return made
}

func (p *peer) receiver(address string) *amqp.Receiver {
	return p.receiverWith(address, &amqp.ReceiverOptions{Credit: 100})
}

func (p *peer) receiverWith(address string, options *amqp.ReceiverOptions) *amqp.Receiver {
	made, err := p.session.NewReceiver(p.scene.ctx, address, options)
	hold(err, "a receiver from "+address)
	return made
}

// counted is a receiver that gets `credit` messages and no more, whatever is settled.
func (p *peer) counted(address string, credit uint32, options amqp.ReceiverOptions) *amqp.Receiver {
	options.Credit = -1
	made := p.receiverWith(address, &options)
	hold(made.IssueCredit(credit), "credit to give")
	return made
}

func text(body string) *amqp.Message { return &amqp.Message{Value: body} }

// numbered are the texts PREFIX0 … PREFIXn-1.
func numbered(prefix string, count int) []string {
	bodies := make([]string, count)
	for i := range bodies {
		bodies[i] = fmt.Sprint(prefix, i)
	}
	return bodies
}

// send sends the texts at once and then waits until each is accepted.
func (s *scene) send(sender *amqp.Sender, bodies ...string) {
	messages := make([]*amqp.Message, len(bodies))
	for i, body := range bodies {
		messages[i] = text(body)
	}
	s.sendMessages(sender, messages...)
}

func (s *scene) sendMessages(sender *amqp.Sender, messages ...*amqp.Message) {
	receipts := make([]amqp.SendReceipt, len(messages))
	for i, message := range messages {
		var err error
		receipts[i], err = sender.SendWithReceipt(s.ctx, message, nil)
		hold(err, "to send")
	}
	for i := range receipts {
		state, err := receipts[i].Wait(s.ctx)
		hold(err, "an outcome")
		if _, accepted := state.(*amqp.StateAccepted); !accepted {
			failf("expected accepted, came %v", state)
		}
	}
}

// take receives `count` messages and settles none.
func (s *scene) take(receiver *amqp.Receiver, count int) []*amqp.Message {
	ctx, cancel := context.WithTimeout(s.ctx, arrival)
	defer cancel()
	var messages []*amqp.Message
	for len(messages) < count {
		message, err := receiver.Receive(ctx, nil)
		if errors.Is(err, context.DeadlineExceeded) {
			failf("expected %d messages, came %v", count, texts(messages))
		}
		hold(err, "a message")
		messages = append(messages, message)
	}
	return messages
}

func (s *scene) takeOne(receiver *amqp.Receiver) *amqp.Message { return s.take(receiver, 1)[0] }

func (s *scene) accept(receiver *amqp.Receiver, messages ...*amqp.Message) {
	for _, message := range messages {
		hold(receiver.AcceptMessage(s.ctx, message), "to accept")
	}
}

// nothing holds when no message comes for a while.
func (s *scene) nothing(receiver *amqp.Receiver) { s.nothingFor(receiver, quiet) }

func (s *scene) nothingFor(receiver *amqp.Receiver, while time.Duration) {
	ctx, cancel := context.WithTimeout(s.ctx, while)
	defer cancel()
	message, err := receiver.Receive(ctx, nil)
	if err == nil {
		failf("expected no message within %s, came %v", while, body(message))
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		failf("expected no message within %s, came: %v", while, err)
	}
}

// gather accepts what comes to any of the receivers until `total` came and then nothing for a while; it
// returns each one's texts.
func (s *scene) gather(total int, receivers ...*amqp.Receiver) [][]string {
	type arrived struct {
		index int
		body  string
		err   error
	}
	ctx, cancel := context.WithCancel(s.ctx)
	came := make(chan arrived)
	var all sync.WaitGroup
	for i, receiver := range receivers {
		all.Go(func() {
			for {
				message, err := receiver.Receive(ctx, nil)
				if ctx.Err() != nil {
					return
				}
				one := arrived{index: i, err: err}
				if err == nil {
					one.err = receiver.AcceptMessage(s.ctx, message)
					one.body = body(message)
				}
				select {
				case came <- one:
				case <-ctx.Done():
					return
				}
				if one.err != nil {
					return
				}
			}
		})
	}
	defer all.Wait()
	defer cancel()
	found := make([][]string, len(receivers))
	for count := 0; ; count++ {
		patience := arrival
		if count >= total {
			patience = quiet
		}
		select {
		case one := <-came:
			hold(one.err, "messages")
			found[one.index] = append(found[one.index], one.body)
		case <-time.After(patience):
			return found
		}
	}
}

// divided holds when every one of the texts came to exactly one receiver and each receiver got `share`.
func divided(found [][]string, expected []string, share int) {
	seen := map[string]int{}
	for _, bodies := range found {
		if len(bodies) != share {
			failf("expected %d messages for each receiver, came %v", share, found)
		}
		for _, each := range bodies {
			seen[each]++
		}
	}
	for _, each := range expected {
		if seen[each] != 1 {
			failf("expected %q once, came %v", each, found)
		}
	}
}

// refused holds when an attach ends with the condition; `attach` makes the link and asks for a message or sends
// one, so that a refusal after the broker's attach is met as well.
func refused(condition amqp.ErrCond, what string, attach func() error) {
	if came := conditionOf(attach()); came != condition {
		failf("expected %s refused with %s, came %s", what, condition, came)
	}
}

func conditionOf(err error) amqp.ErrCond {
	var remote *amqp.Error
	switch {
	case err == nil:
		return "no refusal"
	case errors.As(err, &remote):
		return remote.Condition
	}
	return amqp.ErrCond("no condition: " + err.Error())
}

// tryReceiver attaches and says how that ended; where no refusal comes the link is closed again.
func (p *peer) tryReceiver(address string, options *amqp.ReceiverOptions) error {
	made, err := p.session.NewReceiver(p.scene.ctx, address, options)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(p.scene.ctx, quiet)
	defer cancel()
	message, err := made.Receive(ctx, nil)
	if err == nil {
		err = made.ReleaseMessage(p.scene.ctx, message)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		err = nil
	}
	return errors.Join(err, made.Close(p.scene.ctx))
}

func (p *peer) trySender(address string) error {
	made, err := p.session.NewSender(p.scene.ctx, address, nil)
	if err != nil {
		return err
	}
	return errors.Join(made.Send(p.scene.ctx, text("unwanted"), nil), made.Close(p.scene.ctx))
}

func body(message *amqp.Message) string { return fmt.Sprint(message.Value) }

func texts(messages []*amqp.Message) []string {
	bodies := make([]string, len(messages))
	for i, each := range messages {
		bodies[i] = body(each)
	}
	return bodies
}

func deliveryCount(message *amqp.Message) uint32 {
	if message.Header == nil {
		return 0
	}
	return message.Header.DeliveryCount
}
