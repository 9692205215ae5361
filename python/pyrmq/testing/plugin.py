"""The pytest plugin: fixtures that give a running cluster.

Loaded by the entry point `pytest11` of the distribution. Nothing is imported, and nothing starts,
before a test asks for a fixture.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyrmq.testing.running import Cluster


@pytest.fixture
def rocketmq() -> Iterator[Cluster]:
    """A name server and a broker of this test's own, in this process, with an empty store.

    Example:
        >>> def test_order(rocketmq):
        ...     with pyrmq.Producer(name_server=rocketmq.name_server, group="shop") as producer:
        ...         producer.send("orders", b"two coffees")
    """
    from pyrmq.testing.running import cluster

    with cluster() as running:
        yield running


@pytest.fixture(scope="session")
def rocketmq_session() -> Iterator[Cluster]:
    """One name server and one broker for all tests; take topics of your own."""
    from pyrmq.testing.running import cluster

    with cluster() as running:
        yield running
