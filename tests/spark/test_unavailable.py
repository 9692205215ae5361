"""Why the source cannot be used is said on first use."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from pyrmq.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("pyspark")

from tests.spark.test_elsewhere import bare_python


def test_the_first_use_says_why_the_source_cannot_be_imported() -> None:
    from pyspark.sql.types import StructType

    from pyrmq.spark.unavailable import unavailable

    source = unavailable(ImportError("No module named 'pyarrow'"))
    assert source.name() == "rocketmq"
    text = r"cannot be used by .*python.*No module named 'pyarrow'. Install pyrmq-rocketmq\[spark\]"
    with pytest.raises(ImportError, match=text):
        source({}).schema()
    with pytest.raises(ImportError, match="PYSPARK_PYTHON"):
        source({}).reader(StructType())
    with pytest.raises(ImportError, match="PYSPARK_PYTHON"):
        source({}).streamWriter(StructType(), False)


def test_workers_of_another_python_are_named_beside_the_drivers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyrmq.spark.unavailable import check_worker

    monkeypatch.delenv("PYTHONPATH", raising=False)
    other = bare_python()
    text = rf"workers run {other}, .* No module named '\w+'\. The driver runs {sys.executable}: set"
    with pytest.raises(ConfigError, match=text):
        check_worker(other)
    check_worker(sys.executable)
    # Another path to the driver's Python has all that it has.
    same = tmp_path / "python"
    same.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    same.chmod(0o755)
    check_worker(str(same))
