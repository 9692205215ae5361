"""`pyrmq nameserver | broker | server`: servers in this process, and the state of name servers."""
