"""Replacements for what Spark 4.1 lacks, so that one stream reader works with it too.

Spark 4.1 has no admission control for Python sources: it never uses these.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ReadAllAvailable", "ReadMaxRows", "SupportsTriggerAvailableNow"]


@dataclass
class ReadAllAvailable:
    """All available rows."""


@dataclass
class ReadMaxRows:
    """A limit on the rows of a batch."""

    max_rows: int


class SupportsTriggerAvailableNow:
    """Can end at the offsets that existed at the start."""
