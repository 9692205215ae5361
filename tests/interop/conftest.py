"""Fixtures of the interop tests: few JVMs, each started at the first use and shared by all."""

from __future__ import annotations

import itertools
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.interop import artifacts
from tests.interop.cluster import Cluster, Clusters
from tests.interop.driver import Driver

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HERE = Path(__file__).parent
NUMBERS = itertools.count(1)

PAIRS = (
    ("ours", "JSON"),
    ("ours", "ROCKETMQ"),
    ("java-broker", "ROCKETMQ"),
    ("java-names", "JSON"),
)
"""Kind of cluster and header form of the Java side.

A module may define its own ``PAIRS``, and ``RARE_PAIRS`` only for the run with several versions.
With ``FROM_5 = True`` it leaves out the versions that have no POP.
"""


ALONE = PAIRS[0]
"""With one version, only tests marked `mixed` run on the other pairs, too: those in which the two
servers communicate, which show both header forms as well. The others give the same results there.
"""

TOGETHER = ("test_exchange", "test_our_clients", "test_send_features", "test_timers")
"""Modules that share the real servers of kind `java` run one after the other."""


def versions_of(config: pytest.Config) -> list[str]:
    """Return the RocketMQ versions that the run requests."""
    asked = str(config.getoption("--rocketmq-versions")).split(",")
    unknown = [version for version in asked if version not in artifacts.VERSIONS]
    if unknown:
        raise pytest.UsageError(
            f"unknown RocketMQ versions: {unknown}; known: {artifacts.VERSIONS}"
        )
    return asked


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark all tests of this directory, and give them the time that a JVM needs.

    Tests that mostly wait run only with several versions or `--rocketmq-all` (`make interop`).
    """
    versions = versions_of(config)
    if config.getoption("--rocketmq-all"):
        omitted = [item for item in items if not _runs_with(item, versions)]
    elif len(versions) == 1:
        omitted = [item for item in items if item.get_closest_marker("interop_all")]
    else:
        omitted = []
    if omitted:
        config.hook.pytest_deselected(items=omitted)
        items[:] = [item for item in items if item not in omitted]
    sharing = [item for item in items if item.path.stem in TOGETHER and HERE in item.path.parents]
    if sharing:
        first = items.index(sharing[0])
        others = [item for item in items if item not in sharing]
        items[:] = [*others[:first], *sharing, *others[first:]]
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.interop)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(240))


def _runs_with(item: pytest.Item, versions: list[str]) -> bool:
    """Return whether a test has a case for these versions; the newest takes the unversioned."""
    if HERE not in item.path.parents or artifacts.VERSIONS[0] in versions:
        return True
    assert isinstance(item, pytest.Function)
    return "version" in item.fixturenames and not getattr(item.module, "FROM_5", False)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test for every version, header form and kind of cluster that it names."""
    if "version" in metafunc.fixturenames:
        versions = versions_of(metafunc.config)
        if getattr(metafunc.module, "FROM_5", False):
            versions = [version for version in versions if not version.startswith("4")]
        metafunc.parametrize("version", versions, scope="session")
    if {"kind", "serialize"} <= set(metafunc.fixturenames):
        pairs = getattr(metafunc.module, "PAIRS", PAIRS)
        rare = getattr(metafunc.module, "RARE_PAIRS", ())
        if pairs is PAIRS and metafunc.definition.get_closest_marker("mixed") is None:
            pairs, rare = (ALONE,), tuple(pair for pair in pairs if pair != ALONE)
        if metafunc.config.getoption("--rocketmq-control"):
            pairs, rare = sorted({("java", serialize) for _, serialize in pairs}), ()
        marked = [pytest.param(*pair, marks=pytest.mark.interop_all) for pair in rare]
        metafunc.parametrize("kind,serialize", [*pairs, *marked], scope="session")


@pytest.fixture(scope="session")
def drivers() -> Iterator[Callable[[str, str], Driver]]:
    """Return the Java client of a version and header form; it is started once."""
    artifacts.require_java()
    running: dict[tuple[str, str], Driver] = {}
    with ExitStack() as stack:

        def get(version: str, serialize: str = "JSON") -> Driver:
            key = (version, serialize)
            if key not in running:
                running[key] = Driver(version, serialize).start()
                stack.callback(running[key].kill)
            return running[key]

        yield get


@pytest.fixture(scope="session")
def clusters() -> Iterator[Callable[[str], Clusters]]:
    """Return the clusters of a version."""
    known: dict[str, Clusters] = {}

    def get(version: str) -> Clusters:
        return known.setdefault(version, Clusters(version))

    yield get
    for one in known.values():
        one.close()


@pytest.fixture
def driver(drivers: Callable[[str, str], Driver], version: str, serialize: str) -> Driver:
    """The Java client of the test's version and header form."""
    return drivers(version, serialize)


@pytest.fixture
def cluster(
    clusters: Callable[[str], Clusters], version: str, serialize: str, kind: str
) -> Iterator[Cluster]:
    """The cluster of the test's kind; its logs are printed, so that a failing test shows them."""
    one = clusters(version).get(kind, serialize)
    yield one
    for server in one.servers:
        print(server.log_tail())  # noqa: T201 (pytest shows it for failing tests only)


@pytest.fixture
def name() -> str:
    """A name that no other test uses, for topics and groups."""
    return f"Test{next(NUMBERS)}"


@pytest.fixture
def topic(driver: Driver, cluster: Cluster, name: str) -> str:
    """A new topic of four queues."""
    driver.call("admin.createTopic", namesrv=cluster.namesrv, topic=name, broker=cluster.broker)
    return name
