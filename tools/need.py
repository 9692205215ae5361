"""Report in one line what a machine lacks for a make target.

`need.py rust java` exits with status 1 and names what is missing. `javac` includes `java`. With
`--soft` it only reports which tests will be skipped, unless CI=true: then a missing part is an
error.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

MANIFEST = Path(__file__).resolve().parent.parent / "Cargo.toml"


def _output(command: list[str]) -> str | None:
    """Return what a command prints; None if it cannot be run."""
    if shutil.which(command[0]) is None:
        return None
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout + done.stderr


def _java() -> str | None:
    found = re.search(r'version "(\d+)', _output(["java", "-version"]) or "")
    if found is None or int(found.group(1)) < 17:
        return f"Java 17 (`java`; found: {found.group(1) if found else 'none'})"
    return None


def _rust() -> str | None:
    # This directory pins the toolchain: rustup may download it now, which needs the long timeout.
    printed = _output(["cargo", "--version"])
    if printed is None:
        return "a Rust toolchain (`cargo`; rustup installs it)"
    wanted = re.search(r'rust-version = "(\d+)\.(\d+)"', MANIFEST.read_text(encoding="utf-8"))
    found = re.search(r"cargo (\d+)\.(\d+)", printed)
    if wanted and (not found or tuple(map(int, found.groups())) < tuple(map(int, wanted.groups()))):
        need = ".".join(wanted.groups())
        return (
            f"Rust {need} or newer (found: {printed.strip() or 'nothing'}; `rustup update` helps)"
        )
    return None


def lacks(part: str) -> str | None:
    """Return what is missing for one part, or None."""
    if part == "python":
        if sys.version_info < (3, 11):  # noqa: UP036 - this runs before pip checks it
            found = sys.version.split()[0]
            return f"Python 3.11 or newer (this is {found}; choose one with PYTHON=...)"
    elif part == "rust":
        return _rust()
    elif part == "java":
        return _java()
    elif part == "javac":
        if (missing := _java()) or shutil.which("javac") is not None:
            return missing
        return "a Java 17 development kit (`javac`)"
    elif part == "maven":
        if shutil.which("mvn") is None:
            return "Maven (`mvn`)"
    elif part == "chromium":
        if any(shutil.which(program) is None for program in ("chromium", "chromedriver")):
            return "Chromium and its driver (Debian's packages `chromium` and `chromium-driver`)"
    else:
        return f"a known part name instead of {part!r}"
    return None


def main(arguments: list[str]) -> int:
    """Check every named part."""
    soft = "--soft" in arguments and os.environ.get("CI") != "true"
    missing = [text for part in arguments if part != "--soft" and (text := lacks(part))]
    if not missing:
        return 0
    text = "; ".join(missing)
    if soft:
        print(f"skipped: this machine lacks {text}; tests that need it are skipped and listed")
        return 0
    print(f"missing: {text}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
