"""docs/spark.md says what the code does."""

from __future__ import annotations

from pathlib import Path

from pyrmq.spark.options import KNOWN
from pyrmq.spark.schema import COLUMNS

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "spark.md").read_text()


def test_the_page_lists_every_option_with_its_default() -> None:
    table = PAGE.split("| option | default | meaning |\n|---|---|---|\n", 1)[1].split("\n\n", 1)[0]
    expected = [f"| {name} | {default} | {text} |" for name, (default, text) in KNOWN.items()]
    assert table.replace("\\|", "|").splitlines() == expected


def test_the_page_lists_every_column_with_its_type() -> None:
    table = PAGE.split("| column | type |\n|---|---|\n", 1)[1].split("\n\n", 1)[0]
    assert table.splitlines() == [f"| {name} | {kind} |" for name, kind in COLUMNS.items()]
