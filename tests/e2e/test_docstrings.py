"""The examples of the docstrings run as they stand."""

from __future__ import annotations

import doctest
from importlib import import_module

import pytest

MODULES = [
    "pyrmq",
    "pyrmq.admin",
    "pyrmq.aio",
    "pyrmq.codes",
    "pyrmq.consumer",
    "pyrmq.errors",
    "pyrmq.message",
    "pyrmq.otel",
    "pyrmq.producer",
    "pyrmq.remoting",
    "pyrmq.routing",
    "pyrmq_rocketmq",
]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_hold(name: str) -> None:
    results = doctest.testmod(import_module(name), optionflags=doctest.ELLIPSIS)
    assert results.attempted > 0
    assert results.failed == 0
