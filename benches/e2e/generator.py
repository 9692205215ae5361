"""A load generator in Rust: a process that reads commands by line and answers in JSON."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).resolve().parent.parent.parent


def build(package: str, example: str) -> None:
    """Build an example of a crate with the measured profile."""
    command = ["cargo", "build", "--release", "--quiet", "-p", package, "--example", example]
    subprocess.run(command, cwd=ROOT, check=True, timeout=1800)


def binary(example: str) -> Path:
    """Return the path of a built example."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    return target / "release" / "examples" / example


class Load:
    """A running generator; its brokers and connections live as long as it does."""

    def __init__(self, example: str, *words: str) -> None:
        """Start the generator with these arguments."""
        self._process = subprocess.Popen(
            [binary(example), *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, command: str) -> dict[str, Any]:
        """Run one command; return its figures.

        Raises:
            RuntimeError: the generator has exited.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the load generator ended in `{command}`")
        told: dict[str, Any] = json.loads(line)
        return told

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """End it."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait(timeout=60)
