"""One Spark session and one cluster for all Spark tests; a topic and a directory for each test."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import itertools
import logging
import os
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from pyrmq.spark.local import missing_parts
from tests.interop.conftest import versions_of as asked_versions
from tests.spark.topic import Topic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession


def has_limits(version: str) -> bool:
    """Return whether a Spark of this version limits each batch of a Python source."""
    return tuple(map(int, version.split(".")[:2])) >= (4, 2)


LIMITS = bool(importlib.util.find_spec("pyspark")) and has_limits(
    importlib.metadata.version("pyspark")
)
"""Whether Spark limits each batch of a Python source; 4.1 runs one batch for what is there."""
NUMBERS = itertools.count(1)
PYTHON = Path(__file__).resolve().parents[2] / "python"

QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Halves the processor time of a JVM that runs for a minute."""


class Site(NamedTuple):
    """Addresses of a cluster."""

    name_server: str
    broker: str


@pytest.fixture(scope="session", autouse=True)
def _handlers_keep_their_format() -> Iterator[None]:
    """Keep PySpark's loggers from changing the format of pytest's own handlers.

    pytest adds its handlers to every logger that does not propagate; one of PySpark's gives each
    handler that it gets a JSON format, which later tests would see.
    """
    try:
        from pyspark.logger import PySparkLogger
    except ImportError:
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PySparkLogger, "addHandler", logging.Logger.addHandler)
        yield


@pytest.fixture(scope="session")
def spark(request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    """The session of users' tests. It finds the format automatically: nothing is registered."""
    lacks = missing_parts()
    if lacks is not None and os.environ.get("CI", "").lower() == "true":
        pytest.fail(f"the Spark tests need more: {lacks}", pytrace=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        paths = [str(PYTHON), *filter(None, [os.environ.get("PYTHONPATH")])]
        patch.setenv("PYTHONPATH", os.pathsep.join(paths))
        yield request.getfixturevalue("rocketmq_spark")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test that uses the real RocketMQ on every version that the run requests."""
    if "version" in metafunc.fixturenames:
        metafunc.parametrize("version", asked_versions(metafunc.config), scope="session")


@contextmanager
def real_site(version: str) -> Iterator[Site]:
    """Run the real name server and broker of one version."""
    from tests.interop import artifacts
    from tests.interop.rocketmq import java_pair

    artifacts.require_java()
    names, broker = java_pair(version)
    with ExitStack() as stack:
        stack.callback(names.kill)
        names.start()
        stack.callback(broker.kill)
        broker.start()
        yield Site(names.address, broker.address)


@pytest.fixture(scope="session")
def java_site(version: str) -> Iterator[Site]:
    """The real RocketMQ of one version."""
    with real_site(version) as site:
        yield site


@pytest.fixture(scope="session")
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    """Our cluster of two brokers, the first with the topics; the real one with --rocketmq-control.

    The control checks the tests themselves.
    """
    if request.config.getoption("--rocketmq-control"):
        with real_site(asked_versions(request.config)[0]) as site:
            yield site
        return
    from pyrmq.testing import cluster

    with cluster(brokers=2) as ours:
        yield Site(ours.name_server, ours.broker.address)


@pytest.fixture
def new_topic(site: Site) -> Iterator[Callable[..., Topic]]:
    """Create topics that no other test uses."""
    made: list[Topic] = []

    def make(queues: int = 4) -> Topic:
        topic = Topic(f"Spark{next(NUMBERS)}", *site)
        made.append(topic)
        return topic.create(queues)

    yield make
    for topic in made:
        topic.connections.close()


@pytest.fixture
def topic(new_topic: Callable[..., Topic]) -> Topic:
    """A new topic of four queues."""
    return new_topic()
