// Which features there are, and how one is run: in its own scene, for at most 20 s.
package main

import (
	"context"
	"fmt"
	"time"
)

const featureLimit = 20 * time.Second

type line struct {
	Feature string `json:"feature"`
	Result  string `json:"result"`
	Why     string `json:"why"`
}

var features = map[string]func(*scene){
	"send-receive":         sendReceive,
	"presettled":           presettled,
	"blocked":              blocked,
	"credit":               credit,
	"outcomes":             outcomes,
	"redelivery":           redelivery,
	"acknowledge":          acknowledge,
	"reply":                reply,
	"temporary-topic":      temporaryTopic,
	"relay":                relay,
	"queue-capability":     queueCapability,
	"topic-capability":     topicCapability,
	"prefixes":             prefixes,
	"topic":                topic,
	"wildcard":             wildcard,
	"durable-subscription": durableSubscription,
	"shared-subscription":  sharedSubscription,
	"shared-durable":       sharedDurable,
	"browse":               browse,
	"selector":             selector,
	"bad-selector":         badSelector,
	"no-local":             noLocal,
	"exclusive":            exclusive,
	"single-active":        singleActive,
	"expiry":               expiry,
	"priority":             priority,
	"large":                large,
	"not-found":            notFound,
	"drain":                drain,
	"reattach":             reattach,
	"idle":                 idle,
	"websocket":            overWebsocket,
}

func runFeatures(prefix string, names []string) error {
	for _, name := range names {
		if err := lines.Encode(runFeature(prefix, name)); err != nil {
			return err
		}
	}
	return nil
}

// runFeature waits no longer than the limit: a feature that hangs is left behind without its connections.
func runFeature(prefix, name string) line {
	feature, known := features[name]
	if !known {
		return line{name, "n/a", "this program doesn't know the feature"}
	}
	ctx, cancel := context.WithTimeout(context.Background(), featureLimit)
	defer cancel()
	s := &scene{ctx: ctx, prefix: prefix}
	ended := make(chan line, 1)
	go func() {
		s.note = ""
		defer func() { ended <- s.verdict(name, recover()) }()
		feature(s)
	}()
	var result line
	select {
	case result = <-ended:
	case <-ctx.Done():
		result = line{name, "fail", fmt.Sprintf("expected an end within %s, it hangs", featureLimit)}
	}
	s.strike()
	return result
}

// verdict turns how a feature ended into its line; what was recovered is nil where it held to its end.
func (s *scene) verdict(name string, recovered any) line {
	switch found := recovered.(type) {
	case nil:
		return line{name, "pass", s.note}
	case failure:
		return line{name, "fail", string(found)}
	default:
		return line{name, "fail", fmt.Sprintf("the program itself broke: %v", found)}
	}
}
