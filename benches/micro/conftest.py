"""Switches pytest-benchmark on for this folder, and refuses to measure a debug build."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from pyrmq import _core
from pyrmq.testing import Cluster, cluster

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Undo the project's `--benchmark-disable`, unless this run itself asks for it."""
    if "--benchmark-disable" in config.invocation_params.args:
        return
    if _core.BUILD_PROFILE != "release":
        raise pytest.UsageError(
            f"the native module is a {_core.BUILD_PROFILE} build, whose figures mean nothing: run "
            "`make dev`, which builds it for release"
        )
    config.option.benchmark_disable = False


def pytest_benchmark_update_machine_info(
    config: pytest.Config, machine_info: dict[str, object]
) -> None:
    """Record how busy the machine was: a comparison of a quiet and a busy run says nothing."""
    machine_info["load"] = os.getloadavg()
    machine_info["pyrmq"] = _core.__version__


@pytest.fixture(scope="session")
def rocketmq() -> Iterator[Cluster]:
    """Start one name server and one broker inside this process."""
    with cluster() as running:
        yield running
