//go:build !tls

package main

import (
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

// Secured changes nothing: the release 2.1.2 has no TLS.
func secured(options []consumer.Option) []consumer.Option {
	return options
}

func securedProducer(options []producer.Option) []producer.Option {
	return options
}
