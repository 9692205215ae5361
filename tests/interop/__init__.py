"""Tests against the real Apache RocketMQ, and the code that starts and drives it."""
