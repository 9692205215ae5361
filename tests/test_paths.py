"""The paths that the pages about the code name exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def _unknown_paths(text: str) -> list[str]:
    """The paths in backticks that do not exist.

    A path may be short: below the root, `crates`, a crate's `src` or `python/pyrmq`; in a table
    of rooms below the folder of the first column; or beside a path that stands before it in its
    line.
    """
    crates = ROOT / "crates"
    bases = [ROOT, crates, *crates.glob("*/src"), ROOT / "python" / "pyrmq"]
    place: list[Path] = []
    unknown = []
    for line in text.splitlines():
        if match := re.match(r"\| ([\w/]*) ?\| `", line):
            crate, _, folder = match.group(1).partition("/")
            package = ROOT / "python" / "pyrmq" / crate
            place = [crates / crate / "src" / folder, package] if crate else place
        else:
            place = []
        near = list(place)
        for path in re.findall(r"`([\w.-]*/[\w./-]*|[\w-]+\.(?:rs|py))`", line):
            found = [base / path for base in [*near, *bases] if (base / path).exists()]
            if not found:
                unknown.append(path)
            near += [one if one.is_dir() else one.parent for one in found[:1]]
    return unknown


@pytest.mark.parametrize("document", ["ARCHITECTURE.md", "CONTRIBUTING.md", "docs/code-map.md"])
def test_the_paths_of_a_document_exist(document: str) -> None:
    unknown = _unknown_paths((ROOT / document).read_text(encoding="utf-8"))
    assert not unknown, f"{document} names what is not there: {unknown}"


def test_the_full_paths_of_all_pages_exist() -> None:
    full = re.compile(r"`((?:crates|tests|python|tools|benches|examples)/[\w./-]*)")
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
    assert len(pages) > 20
    unknown = [
        (page.name, path)
        for page in pages
        for path in full.findall(page.read_text(encoding="utf-8"))
        if not (ROOT / path).exists()
    ]
    assert not unknown, f"these pages name what is not there: {unknown}"


def test_the_scan_sees_a_path_that_is_gone() -> None:
    text = """
Read `crates/store/src/fs/`, `real.rs` and `nowhere.rs`; `Table::row` and `a b/c` are no paths.
| crate | folder | what is in it |
| remoting/net | `link/`, `peer.rs` | ... |
| | `table/`, `gone/` | ... |
| other | `link/peer.rs` | ... |
"""
    assert _unknown_paths(text) == ["nowhere.rs", "gone/", "link/peer.rs"]
