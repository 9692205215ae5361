"""Hooks of applications, which see messages when they are sent, received and processed."""
