"""Which offsets a read or a micro-batch takes, and what its tasks are. Asks no server itself."""
