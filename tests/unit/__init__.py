"""Tests that need no server."""
