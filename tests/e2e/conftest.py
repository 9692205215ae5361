"""A cluster of two brokers for all tests of this folder, and a topic for each test."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

import pytest

from pyrmq.testing import Cluster, cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

_NUMBERS = count()


@pytest.fixture(scope="session")
def shared() -> Iterator[Cluster]:
    with cluster(brokers=2) as running:
        yield running


@pytest.fixture
def address(shared: Cluster) -> str:
    return shared.name_server


@pytest.fixture
def topic() -> str:
    return f"topic-{next(_NUMBERS)}"
