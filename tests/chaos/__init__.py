"""The chaos test of the producer."""
