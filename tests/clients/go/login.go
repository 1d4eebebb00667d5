// Being let in, or not, by one mechanism, and sending a message then.
package main

import (
	"context"
	"time"

	"github.com/Azure/go-amqp"
)

// A token doesn't fit into the 512 bytes of a SASL frame; the library asks how large one may be.
const tokenFrame = 16384

func login(user, password, mechanism, address string) error {
	ways := map[string]amqp.SASLType{
		"ANONYMOUS": amqp.SASLTypeAnonymous(),
		"PLAIN":     amqp.SASLTypePlain(user, password),
		"EXTERNAL":  amqp.SASLTypeExternal(""),
		"XOAUTH2":   amqp.SASLTypeXOAUTH2(user, password, tokenFrame),
	}
	way, known := ways[mechanism]
	if !known {
		return lines.Encode(map[string]string{"login": "n/a", "why": "go-amqp has no " + mechanism})
	}
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	socket, err := dial(ctx)
	if err != nil {
		return lines.Encode(map[string]string{"login": "refused", "why": err.Error()})
	}
	connection, err := amqp.NewConn(ctx, socket, &amqp.ConnOptions{SASLType: way})
	if err != nil {
		return lines.Encode(map[string]string{"login": "refused", "why": err.Error()})
	}
	defer connection.Close()
	came := map[string]string{"login": "accepted", "why": ""}
	if address != "" {
		came["send"] = "accepted"
		if err := sendOne(ctx, connection, address); err != nil {
			came["send"], came["why"] = "refused", err.Error()
		}
	}
	return lines.Encode(came)
}

func sendOne(ctx context.Context, connection *amqp.Conn, address string) error {
	session, err := connection.NewSession(ctx, nil)
	if err != nil {
		return err
	}
	sender, err := session.NewSender(ctx, address, nil)
	if err != nil {
		return err
	}
	return sender.Send(ctx, amqp.NewMessage([]byte("hello")), nil)
}
