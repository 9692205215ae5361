"""`pyrmq broker status | config | drain`: commands for running brokers."""
