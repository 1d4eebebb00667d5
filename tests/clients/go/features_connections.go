// Features of links and connections themselves.
package main

import (
	"time"

	"github.com/Azure/go-amqp"
)

func reattach(s *scene) {
	p := s.connectAs(s.prefix + "-reattach")
	options := &amqp.SenderOptions{Name: s.prefix + "-reattach"}
	s.send(p.senderWith(s.at("reattach"), options), "before")
	p.end()
	p.begin()
	s.send(p.senderWith(s.at("reattach"), options), "after")
	sameAll(s.gather(2, p.receiver(s.at("reattach")))[0], []string{"before", "after"}, "messages")
	s.note = "detached by ending the session: the library's own detach always closes"
}

func idle(s *scene) {
	// The library asks the peer for half of what it allows itself (§2.4.5).
	p := s.connectWith(dial, amqp.ConnOptions{IdleTimeout: 2 * time.Second})
	sender, receiver := p.sender(s.at("idle")), p.receiver(s.at("idle"))
	time.Sleep(3 * time.Second)
	s.send(sender, "still here")
	sameAll(s.gather(1, receiver)[0], []string{"still here"}, "messages")
}

func overWebsocket(s *scene) {
	p := s.connectWith(dialWebsocket, amqp.ConnOptions{})
	bodies := numbered("", 10)
	s.send(p.sender(s.at("websocket")), bodies...)
	sameAll(s.gather(10, p.receiver(s.at("websocket")))[0], bodies, "messages")
}
