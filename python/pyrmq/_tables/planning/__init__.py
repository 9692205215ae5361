"""Chooses the offsets and tasks of a read or a micro-batch. Sends no request itself."""
