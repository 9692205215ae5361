//go:build tls

package main

import (
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

// Secured turns TLS on. The client verifies no certificate, and no option changes that.
func secured(options []consumer.Option) []consumer.Option {
	return append(options, consumer.WithTls(true))
}

func securedProducer(options []producer.Option) []producer.Option {
	return append(options, producer.WithTls(true))
}
