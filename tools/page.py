"""Writes a generated page of docs/."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["write"]


def write(page: Path, text: str) -> int:
    """Write the page, or with `--check` only report whether it is up to date; return the status."""
    if "--check" in sys.argv[1:]:
        return int(not page.exists() or page.read_text(encoding="utf-8") != text)
    page.write_text(text, encoding="utf-8")
    return 0
