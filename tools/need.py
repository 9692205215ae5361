"""Say in one line what a machine lacks for a make target.

`need.py rust java` ends with status 1 and names what is missing. With `--soft` it only tells what
will be left out, except under CI=true, where a missing part is a failure.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys


def _version(command: list[str], pattern: str) -> int | None:
    if shutil.which(command[0]) is None:
        return None
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(pattern, done.stdout + done.stderr)
    return int(found.group(1)) if found else None


def lacks(part: str) -> str | None:
    """Return what is missing for one part, or None."""
    if part == "python":
        if sys.version_info < (3, 11):  # noqa: UP036 - it runs before anything is checked
            found = sys.version.split()[0]
            return f"Python 3.11 or newer (this is {found}; choose one with PYTHON=...)"
    elif part == "rust":
        if shutil.which("cargo") is None:
            return "a Rust toolchain (`cargo`; rustup installs it)"
    elif part == "java":
        found = _version(["java", "-version"], r'version "(\d+)')
        if found is None or found < 17:
            return f"Java 17 (`java`; found: {found or 'none'})"
        if shutil.which("javac") is None:
            return "a Java 17 development kit (`javac`)"
    elif part == "maven":
        if shutil.which("mvn") is None:
            return "Maven (`mvn`)"
    else:
        return f"a known part name instead of {part!r}"
    return None


def main(arguments: list[str]) -> int:
    """Check every part that is named."""
    soft = "--soft" in arguments and os.environ.get("CI") != "true"
    missing = [text for part in arguments if part != "--soft" and (text := lacks(part))]
    if not missing:
        return 0
    text = "; ".join(missing)
    if soft:
        print(f"left out: this machine lacks {text}; tests that need it are skipped and listed")
        return 0
    print(f"missing: {text}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
