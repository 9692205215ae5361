"""What brokers and name servers say: routes, offsets, times."""
