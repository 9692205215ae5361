// A consumer or producer of the Go client. It prints a line of JSON for each message. A consumer ends when it has seen as
// many different messages as it was asked for.
//
//	consume push-concurrent|push-orderly|pull|produce NAME_SERVER GROUP TOPIC COUNT
//
// ACCESS_KEY and SECRET_KEY in the environment name the user. TLS needs the build with `-modfile=tls.mod -tags tls`:
// no release of the client has it, so tls.mod names a commit after the last one.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

const limit = 90 * time.Second

type row struct {
	Broker string `json:"broker"`
	Queue  int    `json:"queue"`
	Offset int64  `json:"offset"`
	Body   string `json:"body"`
	Tries  int32  `json:"tries"`
}

// Seen counts different messages. A body that begins with "fails" is refused at its first delivery.
type seen struct {
	mutex  sync.Mutex
	bodies map[string]bool
	wanted int
	done   chan struct{}
	later  consumer.ConsumeResult
}

func (s *seen) handle(messages []*primitive.MessageExt) consumer.ConsumeResult {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	result := consumer.ConsumeSuccess
	for _, message := range messages {
		body := string(message.Body)
		text, err := json.Marshal(row{
			message.Queue.BrokerName, message.Queue.QueueId, message.QueueOffset, body, message.ReconsumeTimes,
		})
		check(err)
		fmt.Println(string(text))
		if len(body) > 5 && body[:5] == "fails" && message.ReconsumeTimes == 0 {
			result = s.later
			continue
		}
		s.bodies[body] = true
	}
	if len(s.bodies) == s.wanted {
		s.wanted = -1
		close(s.done)
	}
	return result
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func (s *seen) push(topic string, options []consumer.Option) {
	c, err := rocketmq.NewPushConsumer(options...)
	check(err)
	handle := func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		return s.handle(messages), nil
	}
	check(c.Subscribe(topic, consumer.MessageSelector{}, handle))
	check(c.Start())
	s.await(func() {})
	// The client takes a message off its queue after the listener has returned, and tells nobody.
	time.Sleep(time.Second)
	check(c.Shutdown())
}

func (s *seen) pull(topic string, options []consumer.Option) {
	c, err := rocketmq.NewPullConsumer(options...)
	check(err)
	check(c.Subscribe(topic, consumer.MessageSelector{Type: consumer.TAG, Expression: "*"}))
	check(c.Start())
	s.await(func() {
		request, err := c.Poll(context.Background(), time.Second)
		if consumer.IsNoNewMsgError(err) {
			return
		}
		check(err)
		c.ACK(context.Background(), request, s.handle(request.GetMsgList()))
	})
	check(c.PersistOffset(context.Background(), topic))
	check(c.Shutdown())
}

// Calls step again and again until everything was seen.
func (s *seen) await(step func()) {
	late := time.After(limit)
	for {
		select {
		case <-s.done:
			return
		case <-late:
			check(fmt.Errorf("not all messages came within %v", limit))
		case <-time.After(10 * time.Millisecond):
			step()
		}
	}
}

func main() {
	rlog.SetLogLevel("error")
	how, server, group, topic := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	count, err := strconv.Atoi(os.Args[5])
	check(err)
	resolver := primitive.NewPassthroughResolver([]string{server})
	user := primitive.Credentials{AccessKey: os.Getenv("ACCESS_KEY"), SecretKey: os.Getenv("SECRET_KEY")}
	if how == "produce" {
		options := []producer.Option{
			producer.WithGroupName(group),
			producer.WithNsResolver(resolver),
			producer.WithRetry(0),
			producer.WithInstanceName(strconv.Itoa(os.Getpid())),
		}
		if user.AccessKey != "" {
			options = append(options, producer.WithCredentials(user))
		}
		produce(topic, count, securedProducer(options))
		return
	}
	s := &seen{bodies: map[string]bool{}, wanted: count, done: make(chan struct{}), later: consumer.ConsumeRetryLater}
	options := []consumer.Option{
		consumer.WithGroupName(group),
		consumer.WithNsResolver(resolver),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
		consumer.WithInstance(strconv.Itoa(os.Getpid())),
	}
	if user.AccessKey != "" {
		options = append(options, consumer.WithCredentials(user))
	}
	options = secured(options)
	switch how {
	case "push-concurrent":
		s.push(topic, options)
	case "push-orderly":
		s.later = consumer.SuspendCurrentQueueAMoment
		s.push(topic, append(options, consumer.WithConsumerOrder(true)))
	case "pull":
		s.pull(topic, options)
	default:
		check(fmt.Errorf("unknown consumer %q", how))
	}
}
