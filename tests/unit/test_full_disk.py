"""A run of tests whose disk fills up."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

TESTS = """
import shutil
from collections import namedtuple

Space = namedtuple("Space", "total used free")

def test_that_fills_the_disk() -> None:
    shutil.disk_usage = lambda _: Space(100 << 30, 99 << 30, 1 << 30)

def test_that_would_hang() -> None:
    raise AssertionError("it ran")
"""


def run(directory: Path) -> subprocess.CompletedProcess[str]:
    """Run two tests under the conftest of all tests."""
    (directory / "conftest.py").write_text("from tests.conftest import *\n")
    (directory / "test_disk.py").write_text(TESTS)
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "--rootdir=.",
            "--basetemp=inner",
            ".",
        ],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'python'}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
    )


@pytest.mark.timeout(120)
def test_a_disk_that_fills_up_ends_the_run_before_the_next_test(tmp_path: Path) -> None:
    done = run(tmp_path)
    assert "it ran" not in done.stdout
    assert "1 passed" in done.stdout
    assert done.stdout.count("is too full for these tests: 99 % are used") == 1, done.stdout
    assert done.returncode == 4
