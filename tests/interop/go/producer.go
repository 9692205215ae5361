package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

// Produce sends messages m-0, m-1 and so on, one at a time and the last ten in one batch, and prints a row for each
// single one. It ends with the first error.
func produce(topic string, count int, options []producer.Option) {
	p, err := rocketmq.NewProducer(options...)
	check(err)
	check(p.Start())
	single := count - 10
	var batch []*primitive.Message
	for at := 0; at < count; at++ {
		message := primitive.NewMessage(topic, []byte("m-"+strconv.Itoa(at)))
		message.WithKeys([]string{"key \"ü\" " + strconv.Itoa(at)})
		if at >= single {
			batch = append(batch, message)
			continue
		}
		result, err := p.SendSync(context.Background(), message)
		check(err)
		if result.Status != primitive.SendOK {
			check(fmt.Errorf("sent with status %v", result.Status))
		}
		queue := result.MessageQueue
		text, err := json.Marshal(row{queue.BrokerName, queue.QueueId, result.QueueOffset, string(message.Body), 0})
		check(err)
		fmt.Println(string(text))
	}
	if len(batch) > 0 {
		_, err := p.SendSync(context.Background(), batch...)
		check(err)
	}
	check(p.Shutdown())
}
