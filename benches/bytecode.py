"""Compiled modules for the programs that a benchmark starts."""

from __future__ import annotations

import os
import tempfile
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["kept_bytecode"]


@contextmanager
def kept_bytecode() -> Iterator[None]:
    """Let started processes keep compiled modules in a temporary directory.

    pip compiles the modules of a wheel when it installs them. A checkout whose environment has
    `PYTHONDONTWRITEBYTECODE` compiles them at each start, which no user waits for.
    """
    with tempfile.TemporaryDirectory(prefix="pyrmq-bench-") as directory:
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = directory
        yield
