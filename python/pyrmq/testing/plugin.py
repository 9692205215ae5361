"""The pytest plugin: fixtures with a running cluster.

The distribution's entry point `pytest11` loads it. It imports and starts nothing before a test
requests a fixture. Every cluster has its own ports and directories, so tests can run in several
processes at the same time (pytest-xdist).
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

    from pyrmq.testing.running import Cluster

_MARK = (
    "rocketmq(**arguments): arguments of `pyrmq.testing.cluster` for the cluster of `rocketmq` "
    "or `rocketmq_session`: brokers=2"
)


def pytest_configure(config: pytest.Config) -> None:
    """Declare the mark."""
    config.addinivalue_line("markers", _MARK)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Pass a test's mark on to the session's fixture, which cannot see it."""
    mark = metafunc.definition.get_closest_marker("rocketmq")
    if mark is not None and "rocketmq_session" in metafunc.fixturenames:
        values = _of_mark(mark)
        name = ",".join(f"{key}={value}" for key, value in values.items())
        metafunc.parametrize("rocketmq_session", [values], indirect=True, ids=[name])


@pytest.fixture(scope="session")
def rocketmq_options() -> dict[str, Any]:
    """Arguments of `cluster()` for all fixtures here; override it in a `conftest.py`.

    Example:
        >>> @pytest.fixture(scope="session")
        ... def rocketmq_options():
        ...     return {"brokers": 2}
    """
    return {}


@pytest.fixture
def rocketmq(request: pytest.FixtureRequest, rocketmq_options: dict[str, Any]) -> Iterator[Cluster]:
    """A cluster for this test only, in this process, with empty stores.

    Example:
        >>> @pytest.mark.rocketmq(brokers=2)
        ... def test_order(rocketmq):
        ...     with pyrmq.Producer(name_server=rocketmq.name_server, group="shop") as producer:
        ...         producer.send("orders", b"two coffees")
    """
    from pyrmq.testing.running import cluster

    mark = request.node.get_closest_marker("rocketmq")
    with cluster(**rocketmq_options | ({} if mark is None else _of_mark(mark))) as running:
        yield running


@pytest.fixture
def rocketmq_factory(rocketmq_options: dict[str, Any]) -> Iterator[Callable[..., Cluster]]:
    """Starts clusters for this test: it takes the arguments of `cluster()`.

    Example:
        >>> def test_a_move(rocketmq_factory):
        ...     old, new = rocketmq_factory(), rocketmq_factory(brokers=2)
    """
    from pyrmq.testing.running import cluster

    with ExitStack() as stack:
        yield lambda **arguments: stack.enter_context(cluster(**rocketmq_options | arguments))


@pytest.fixture(scope="session")
def rocketmq_session(
    request: pytest.FixtureRequest,
    rocketmq_options: dict[str, Any],
    rocketmq_session_factory: Callable[..., Cluster],
) -> Cluster:
    """One cluster for all tests with the same arguments; use separate topics."""
    return rocketmq_session_factory(**rocketmq_options | getattr(request, "param", {}))


@pytest.fixture(scope="session")
def rocketmq_session_factory(rocketmq_options: dict[str, Any]) -> Iterator[Callable[..., Cluster]]:
    """Starts the session's clusters, one for each set of arguments."""
    from pyrmq.testing.running import cluster

    known: list[tuple[dict[str, Any], Cluster]] = []
    with ExitStack() as stack:

        def give(**arguments: Any) -> Cluster:  # noqa: ANN401 - as `cluster` takes them
            wanted = rocketmq_options | arguments
            for other, running in known:
                if other == wanted:
                    return running
            running = stack.enter_context(cluster(**wanted))
            known.append((wanted, running))
            return running

        yield give


@pytest.fixture(scope="session")
def rocketmq_spark() -> Iterator[SparkSession]:
    """A quiet Spark on two cores for all tests; they are skipped if Java or pyspark is missing.

    Example:
        >>> def test_orders(rocketmq_spark, rocketmq_session):
        ...     options = {"nameServer": rocketmq_session.name_server, "topic": "orders"}
        ...     rocketmq_spark.read.format("rocketmq").options(**options).load().count()
    """
    from pyrmq.spark.local import missing_parts, session

    lacks = missing_parts()
    if lacks is not None:
        pytest.skip(f"no local Spark: {lacks}")
    # Compiling little halves the processor time of a JVM that runs for a minute.
    started = session(
        "local[2]",
        spark_driver_memory="1g",
        spark_driver_extraJavaOptions="-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        spark_sql_shuffle_partitions="2",
    )
    yield started
    started.stop()


def _of_mark(mark: pytest.Mark) -> dict[str, Any]:
    if mark.args:
        raise pytest.UsageError(
            f"the mark `rocketmq` takes only keywords, such as brokers=2: {mark.args!r}"
        )
    return dict(mark.kwargs)
