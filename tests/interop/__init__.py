"""Tests against the real Apache RocketMQ, and what starts and drives it."""
