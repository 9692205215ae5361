"""The examples of all docstrings run as written."""

from __future__ import annotations

import doctest
from importlib import import_module
from pathlib import Path

import pytest

PYTHON = Path(__file__).resolve().parents[2] / "python"


def _modules() -> list[object]:
    """Return every module with examples, by name, except Spark's, which have their own tests."""
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
