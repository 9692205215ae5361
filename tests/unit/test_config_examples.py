"""The examples in the docstrings of the servers' modules run."""

from __future__ import annotations

import doctest
import pkgutil
from importlib import import_module

import pytest

PACKAGES = ("config", "server", "nameserver", "broker", "testing", "cli")
MODULES = [
    module.name
    for package in PACKAGES
    for module in pkgutil.walk_packages(
        import_module(f"pyrmq.{package}").__path__, f"pyrmq.{package}."
    )
    if not module.name.endswith("__main__")
]


@pytest.mark.parametrize("name", [*MODULES, *(f"pyrmq.{package}" for package in PACKAGES)])
def test_examples_run(name: str) -> None:
    assert doctest.testmod(import_module(name), optionflags=doctest.ELLIPSIS).failed == 0
