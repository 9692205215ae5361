"""Run `cargo test`; with --retry run each test program that failed once more.

A failure that repeats is real. One that does not is named at the end, so that somebody looks at it.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys

FAILED = re.compile(r"^\s*(?:error: test failed, to rerun pass )?`(-p [^`]+)`\s*$", re.M)
MOST = 5
"""Test programs that may need a second run: more are no stalls of a busy machine."""


def run(arguments: list[str]) -> tuple[int, list[str]]:
    """Run cargo, show what it prints; return its status and the programs that failed."""
    command = ["cargo", "test", "--no-fail-fast", *arguments]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as cargo:
        assert cargo.stdout is not None
        lines = []
        for line in cargo.stdout:
            sys.stdout.write(line)
            lines.append(line)
    sys.stdout.flush()
    return cargo.returncode, list(dict.fromkeys(FAILED.findall("".join(lines))))


def main(words: list[str]) -> int:
    """Run all, then what failed."""
    retry = "--retry" in words
    arguments = words[words.index("--") + 1 :]
    status, failed = run(arguments)
    # Without a program's name something else failed: the build, for instance.
    if status == 0 or not retry or not failed or len(failed) > MOST:
        return status
    options = [one for one in arguments if one in {"--all-features", "--quiet"}]
    for program in failed:
        print(f"failed once, run again: {program}", flush=True)
        status, _ = run([*shlex.split(program), *options])
        if status:
            return status
    print(f"needed a second run: {'; '.join(failed)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
