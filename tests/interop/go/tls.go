//go:build tls

package main

import "github.com/apache/rocketmq-client-go/v2/consumer"

// Secured turns TLS on. The client verifies no certificate, and no option changes that.
func secured(options []consumer.Option) []consumer.Option {
	return append(options, consumer.WithTls(true))
}
