"""`pyrmq nameserver | broker | server`: servers of this process; how name servers are."""
