// The commands send-types and receive-types: a case there, a case back.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"time"

	"github.com/Azure/go-amqp"
)

type typeCase struct {
	Name    string   `json:"name"`
	Section string   `json:"section"`
	Value   notation `json:"value"`
}

type sentLine struct {
	Name   string `json:"name"`
	Result string `json:"result"`
	Why    string `json:"why,omitempty"`
}

// receivedLine has either a value or a result with its why. The name is missing (null) where the library
// couldn't even decode the message.
type receivedLine struct {
	Name   *string   `json:"name"`
	Value  *notation `json:"value,omitempty"`
	Result string    `json:"result,omitempty"`
	Why    string    `json:"why,omitempty"`
}

func sendTypes(address, file string) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var cases []typeCase
	if err := json.Unmarshal(content, &cases); err != nil {
		return err
	}
	return openly(func(s *scene) {
		sender := s.connect().sender(address)
		for _, each := range cases {
			result := sentLine{Name: each.Name, Result: "sent"}
			message, err := each.message()
			if err != nil {
				result.Result, result.Why = "n/a", err.Error()
			} else {
				s.sendMessages(sender, message)
			}
			hold(lines.Encode(result), "to print")
		}
	})
}

// message is the case's message, or the reason why the library can't make it.
func (c typeCase) message() (*amqp.Message, error) {
	value, err := c.Value.native()
	if err != nil {
		return nil, err
	}
	message := &amqp.Message{Properties: &amqp.MessageProperties{Subject: &c.Name}}
	if c.Section != "value" && c.Section != "data" && c.Section != "sequence" {
		message.Value = ""
	}
	switch c.Section {
	case "value":
		message.Value = value
		if value == nil {
			message.Value = amqp.Null{}
		}
	case "data":
		message.Data = [][]byte{value.([]byte)}
	case "sequence":
		message.Sequence = [][]any{value.([]any)}
	case "application-properties":
		message.ApplicationProperties = map[string]any{"k": value}
	case "message-annotations":
		message.Annotations = amqp.Annotations{"k": value}
	case "footer":
		message.Footer = amqp.Annotations{"k": value}
	case "message-id":
		message.Properties.MessageID = value
	case "correlation-id":
		message.Properties.CorrelationID = value
	default:
		return nil, errors.New("unknown section " + c.Section)
	}
	return message, nil
}

// receiveTypes asks for one settled message at a time. A char or a decimal makes the library close the link
// before the program hears of the message; settled, it doesn't come again, and the next link gets the next one.
func receiveTypes(address string, count int) error {
	return openly(func(s *scene) {
		p := s.connect()
		options := amqp.ReceiverOptions{RequestedSenderSettleMode: amqp.SenderSettleModeSettled.Ptr()}
		receiver := p.counted(address, 1, options)
		for done := 0; done < count; done++ {
			message, err := receiveWithin(s.ctx, receiver, featureLimit)
			var closed *amqp.LinkError
			switch {
			case err == nil:
				hold(lines.Encode(received(message)), "to print")
				hold(receiver.IssueCredit(1), "credit to give")
			case errors.As(err, &closed) && closed.RemoteErr == nil:
				hold(lines.Encode(receivedLine{Result: "n/a", Why: "the library can't decode it: " + err.Error()}), "to print")
				receiver = p.counted(address, 1, options)
			default:
				hold(err, "a message")
			}
		}
	})
}

func receiveWithin(ctx context.Context, receiver *amqp.Receiver, limit time.Duration) (*amqp.Message, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return receiver.Receive(ctx, nil)
}

// received reads the case's value from the section that its name begins with.
func received(message *amqp.Message) receivedLine {
	var name string
	if message.Properties != nil && message.Properties.Subject != nil {
		name = *message.Properties.Subject
	}
	value, err := inSection(name, message)
	var noted notation
	if err == nil && losesSymbol(name) {
		err = errors.New("the library decodes symbols as strings")
	}
	if err == nil {
		noted, err = notationOf(value)
	}
	if err != nil {
		return receivedLine{Name: &name, Result: "n/a", Why: err.Error()}
	}
	return receivedLine{Name: &name, Value: &noted}
}

func inSection(name string, message *amqp.Message) (any, error) {
	within := func(section string) bool { return strings.HasPrefix(name, section+"-") }
	key := func(found bool, value any) (any, error) {
		if !found {
			return nil, errors.New("expected a key k, came none")
		}
		return value, nil
	}
	switch {
	case within("property"):
		value, found := message.ApplicationProperties["k"]
		return key(found, value)
	case within("message-annotations"):
		value, found := message.Annotations["k"]
		return key(found, value)
	case within("footer"):
		value, found := message.Footer["k"]
		return key(found, value)
	case within("message-id"):
		return message.Properties.MessageID, nil
	case within("correlation-id"):
		return message.Properties.CorrelationID, nil
	case len(message.Data) > 0:
		return message.GetData(), nil
	case len(message.Sequence) > 0:
		return message.Sequence[0], nil
	}
	return message.Value, nil
}

// losesSymbol says which cases hold a symbol where the library gives a Go string: everywhere but in an array.
func losesSymbol(name string) bool {
	for _, each := range []string{"symbol", "map", "described"} {
		if name == each || strings.HasSuffix(name, "-"+each) || strings.HasSuffix(name, each+"-long") {
			return name != "array-symbol"
		}
	}
	return false
}

// openly runs a command in a scene without the features' limit; what fails is its error.
func openly(act func(*scene)) (err error) {
	s := &scene{ctx: context.Background()}
	defer s.strike()
	defer func() {
		if found, failed := recover().(failure); failed {
			err = errors.New(string(found))
		}
	}()
	act(s)
	return nil
}
