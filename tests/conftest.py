"""Options and settings that every test shares."""

from __future__ import annotations

import shutil
import signal
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from pyrmq.config.broker import BrokerOptions
from tests.secret_search import SecretSearch

# On a busy machine, an example may take any time.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


_DISK = BrokerOptions()

MAX_RERUNS = 3
"""Tests of one run that may need a second try (`--reruns`, which the Makefile sets in CI)."""


def pytest_configure(config: pytest.Config) -> None:
    """Let Ctrl-C work; search the files that the run has left for the secrets that it used."""
    # A shell starts its background jobs with SIGINT ignored, and Python leaves it so.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.pluginmanager.register(SecretSearch())


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add options for real RocketMQ versions and for tests too long for the gate."""
    parser.addoption(
        "--nightly", action="store_true", help="also run the tests that are too long for the gate"
    )
    parser.addoption(
        "--rocketmq-versions",
        default="5.5.0",
        help="real RocketMQ versions for the interop tests, comma separated: 5.5.0,4.9.7,4.6.1",
    )
    parser.addoption(
        "--rocketmq-all",
        action="store_true",
        help="also run the interop tests marked `interop_all` if one version is requested; those "
        "that do not take a version run with the newest only",
    )
    parser.addoption(
        "--rocketmq-control",
        action="store_true",
        help="run the interop tests against the real servers only, to check the tests themselves",
    )
    parser.addoption(
        "--name-sequences",
        default="30",
        help="random request sequences that the real name server and ours must answer alike",
    )
    parser.addoption("--name-sequences-from", default="0", help="number of the first of them")
    parser.addoption(
        "--chaos-messages",
        type=int,
        help="messages of the chaos tests; default: 20,000 of producers, 50,000 for groups",
    )
    parser.addoption("--chaos-seed", default="1", help="what happens to whom in the chaos test")
    parser.addoption(
        "--chaos-slack-ms",
        default="100",
        help="by how much a call of the chaos test may outlive its time, without the time in which "
        "this machine woke the test's own threads too late",
    )
    parser.addoption(
        "--hostile-seconds",
        type=float,
        default=600,
        help="how long the nightly test of tests/e2e/test_hostile_tls.py attacks a secured server",
    )
    parser.addoption(
        "--snapshot-minutes",
        type=float,
        default=10,
        help="load before the snapshot of the nightly test of tests/e2e/test_store_snapshot.py",
    )
    parser.addoption("--leak-sends", default="50000", help="messages of the leak test")
    parser.addoption(
        "--leak-producers", default="200", help="producers that the leak test opens and closes"
    )
    parser.addoption(
        "--kill-rounds",
        default="2",
        help="how often tests/e2e/test_kill.py kills a broker under load, at each level",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests that are too long for the gate, unless the run requests them."""
    if config.getoption("--nightly"):
        return
    long = [item for item in items if item.get_closest_marker("nightly")]
    config.hook.pytest_deselected(items=long)
    items[:] = [item for item in items if item not in long]


def pytest_collection_finish(session: pytest.Session) -> None:
    """End the run at once, with the reason, if every broker would refuse to store."""
    if any(_may_start_servers(item) for item in session.items):
        _exit_on_full_disk()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """End a run whose disk has filled up: from here on, each test would wait for its timeout."""
    if _may_start_servers(item):
        _exit_on_full_disk()


def _may_start_servers(item: pytest.Item) -> bool:
    return Path(__file__).parent / "unit" not in item.path.parents


def _exit_on_full_disk() -> None:
    path = tempfile.gettempdir()
    space = shutil.disk_usage(path)
    used = 100 * (1 - space.free / space.total)
    limit, enough = _DISK.disk_space_warning_level_ratio, _DISK.disk_space_enough_bytes
    if used > limit and space.free < enough:
        pytest.exit(
            f"the disk of {path} is too full for these tests: {used:.0f} % are used and "
            f"{space.free / 2**30:.1f} GiB are free, and a broker refuses messages above {limit} % "
            f"with less than {enough / 2**30:.0f} GiB free; make room, or set TMPDIR to a "
            "directory of another disk (tests/unit runs without)",
            returncode=pytest.ExitCode.USAGE_ERROR,
        )


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Name the tests that needed a second try; fail a run with more than stalls explain."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None:
        return
    reruns = reporter.stats.get("rerun", [])
    for report in reruns:
        reporter.write_line(f"failed once: {report.nodeid}", yellow=True)
        reporter.write_line(report.longreprtext)
    if exitstatus == pytest.ExitCode.OK and len(reruns) > MAX_RERUNS:
        reporter.write_line(f"{len(reruns)} tests failed once, at most {MAX_RERUNS} may", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
