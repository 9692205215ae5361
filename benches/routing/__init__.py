"""Queue selection under slow, silent and returning brokers, simulated."""
