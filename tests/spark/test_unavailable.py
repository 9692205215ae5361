"""Why the source cannot be used is said on first use."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")


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
