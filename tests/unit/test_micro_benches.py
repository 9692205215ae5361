"""The micro-benchmarks run, and refuse to measure a debug build."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


PROGRAM = """
import sys, pytest

class Profile:
    # Before the conftest, and after pytest has seen its plugins: ours imports pyrmq.
    @pytest.hookimpl(tryfirst=True)
    def pytest_load_initial_conftests(self):
        from pyrmq import _core
        _core.BUILD_PROFILE = {profile!r}

sys.exit(pytest.main(sys.argv[1:], plugins=[Profile()]))
"""


def micro(*args: str, profile: str = "release") -> subprocess.CompletedProcess[str]:
    """Run the benchmarks in a process of their own, with a native module of this profile."""
    program = PROGRAM.format(profile=profile)
    command = [
        sys.executable,
        "-c",
        program,
        "benches/micro",
        "-q",
        "-p",
        "no:cacheprovider",
        *args,
    ]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=110, check=False
    )


@pytest.mark.timeout(120)
def test_each_benchmark_runs_once() -> None:
    done = micro("--benchmark-disable")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.timeout(120)
def test_the_project_s_switch_against_benchmarks_does_not_hold_for_them() -> None:
    done = micro("-k", "test_select_by_key", "--benchmark-max-time=0.01")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "benchmark 'choose a queue'" in done.stdout


@pytest.mark.timeout(120)
def test_a_debug_build_is_refused() -> None:
    done = micro(profile="debug")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "make dev" in done.stderr
