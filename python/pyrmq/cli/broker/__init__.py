"""`pyrmq broker status | config | drain`: verbs on brokers that run."""
