"""The rows that the documentation names are rows of the programs that measure."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from benches.e2e.__main__ import KNOWN
from benches.turns import ROWS as TURNS

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "benches/README.md"]
PAGES += sorted((ROOT / "docs").rglob("*.md"))
STORE = (ROOT / "crates/store/examples/store_bench/main.rs").read_text()
COMMAND = re.compile(r"(benches\.e2e|benches\.turns|store_bench)\b[^`]*?--rows ([a-z0-9_,-]+)")
MAKE = re.compile(r"\bROW=([a-z0-9_,-]+)")


def named() -> list[tuple[str, str, str]]:
    """Return page, program and row of each place that names one."""
    found: list[tuple[str, str, str]] = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        places = [*COMMAND.findall(text), *(("benches.e2e", rows) for rows in MAKE.findall(text))]
        for program, rows in places:
            found += [(page.name, program, row) for row in rows.split(",")]
    return found


@pytest.mark.parametrize(("page", "program", "row"), sorted(set(named())))
def test_a_row_that_a_page_names_can_be_measured(page: str, program: str, row: str) -> None:
    if program == "store_bench":
        assert f'"{row}"' in STORE, page
    else:
        assert row in (KNOWN if program == "benches.e2e" else TURNS), page
