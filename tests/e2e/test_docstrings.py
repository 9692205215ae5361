"""The examples of the docstrings run as they stand, in whatever module they are."""

from __future__ import annotations

import doctest
from importlib import import_module
from pathlib import Path

import pytest

PYTHON = Path(__file__).resolve().parents[2] / "python"


def _modules() -> list[object]:
    """Every module that shows something, by name; those of Spark are of its ring."""
    found: list[object] = []
    for path in sorted(PYTHON.rglob("*.py")):
        if ">>> " in path.read_text(encoding="utf-8"):
            words = path.relative_to(PYTHON).with_suffix("").parts
            name = ".".join(word for word in words if word != "__init__")
            marks = [pytest.mark.spark] if "spark" in words else []
            found.append(pytest.param(name, marks=marks))
    return found


@pytest.mark.parametrize("name", _modules())
def test_the_examples_of_a_module_hold(name: str) -> None:
    if ".spark" in name:
        pytest.importorskip("pyspark")
    module = import_module(name)
    results = doctest.testmod(module, optionflags=doctest.ELLIPSIS)
    assert results.failed == 0
