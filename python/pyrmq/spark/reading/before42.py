"""Stand-ins for what Spark 4.1 lacks, so that one stream reader serves it too.

Spark 4.1 has no admission control for Python sources: it never looks at these.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ReadAllAvailable", "ReadMaxRows", "SupportsTriggerAvailableNow"]


@dataclass
class ReadAllAvailable:
    """Everything that is there."""


@dataclass
class ReadMaxRows:
    """A limit on the rows of a batch."""

    max_rows: int


class SupportsTriggerAvailableNow:
    """Can end at what was there at the start."""
