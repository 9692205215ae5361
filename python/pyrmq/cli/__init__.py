"""The command line: `pyrmq nameserver | broker | server | send | tail | topic`."""

from pyrmq.cli.main import main

__all__ = ["main"]
