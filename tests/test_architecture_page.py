"""ARCHITECTURE.md and docs/code-map.md say what the other tests of the architecture enforce."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

from tests.test_architecture import CRATES, FOLDERS
from tests.test_python_imports import BASE, PACKAGES, PYTHON

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
CODE_MAP = (ROOT / "docs" / "code-map.md").read_text(encoding="utf-8")

PAGE_LINES = 110
OWN_WORDS = 10

Graph = dict[str, set[str]]


def _closed(graph: Graph) -> Graph:
    """Everything that each part uses, by itself or through others."""
    closed = {place: set(used) for place, used in graph.items()}
    for middle in closed:
        for used in closed.values():
            if middle in used:
                used |= closed[middle]
    return closed


def _arrows(drawing: str) -> Graph:
    """The edges of chains such as `a, b -> c -> d`; two spaces end a chain."""
    edges: Graph = {}
    for chain in re.split(r"\n|  +", drawing):
        groups = [set(group.split(", ")) for group in chain.split(" -> ") if group]
        for place in set().union(*groups):
            edges.setdefault(place, set())
        for users, used in pairwise(groups):
            for user in users:
                edges[user] |= used
    return edges


def _order_faults(page: str, orders: dict[str, list[str]]) -> list[str]:
    """Folders of a table that are unknown, missing, or not in the order of their imports."""
    listed: dict[str, list[str]] = {}
    place = ""
    for row in re.finditer(r"(?m)^\| ([\w/]*) ?\| (`[^|]*) \|", page):
        place = row[1] or place
        names = [name.split("/")[0] for name in re.findall(r"`([\w./]+)`", row[2])]
        listed.setdefault(place, []).extend(name.removesuffix(".rs") for name in names)
    faults = []
    for place, names in listed.items():
        order, unique = orders[place], list(dict.fromkeys(names))
        if unique != [name for name in order if name in unique]:
            faults.append(f"{place}: {unique}, not {order}")
        base, _, inner = place.partition("/")
        folders = (ROOT / "crates" / base / "src" / inner, ROOT / "python" / "pyrmq" / place)
        faults += [
            f"{place}: {name} is missing"
            for name in order
            if name not in unique and any((folder / name).is_dir() for folder in folders)
        ]
    return faults


def test_the_page_is_one_page() -> None:
    assert PAGE.count("\n") <= PAGE_LINES


def test_the_page_has_the_graph_of_crates() -> None:
    rows = re.findall(r"(?m)^\| `crates/(\w+)` \| .* \| ?(.*) \|$", PAGE)
    graph = {
        name: set(CRATES) - {name, "testkit"}
        if used == "all above"
        else set(filter(None, used.split(", ")))
        for name, used in rows
    }
    assert graph == CRATES


def test_the_page_has_the_graph_of_python_packages() -> None:
    (drawing,) = re.findall(r"(?s)```\n(.*?)```", PAGE)
    in_prose = BASE | {"cli", "pyrmq_rocketmq"}
    allowed = {place: used - BASE for place, used in PYTHON.items() if place not in in_prose}
    assert _closed(_arrows(drawing)) == _closed(allowed)


def test_the_scan_reads_a_drawing() -> None:
    assert _arrows("a, b -> c, d      e -> a\nf\n") == {
        "a": {"c", "d"},
        "b": {"c", "d"},
        "c": set(),
        "d": set(),
        "e": {"a"},
        "f": set(),
    }
    assert _closed({"e": {"a"}, "a": {"c"}, "c": set()})["e"] == {"a", "c"}


def test_the_code_map_has_each_folder_in_the_order_of_imports() -> None:
    folders = CODE_MAP.partition("## Folders")[2].partition("## Libraries")[0]
    faults = _order_faults(folders, FOLDERS | PACKAGES)
    assert not faults, "\n".join(faults)


def test_the_scan_sees_folders_in_a_wrong_order() -> None:
    page = "| routing | `table/`, `filter/` | x |\n| | `select.rs` | y |\n"
    order = {"routing": ["select", "allocate", "filter", "table"]}
    assert _order_faults(page, order) == [
        f"routing: ['table', 'filter', 'select'], not {order['routing']}",
        "routing: allocate is missing",
    ]


def test_few_words_are_our_own_and_each_is_a_name_in_the_code() -> None:
    words = re.findall(r"(?m)^\| ([a-z ]+) \|", PAGE.partition("## Words")[2])[1:]
    assert len(words) <= OWN_WORDS
    code = "".join(
        path.read_text(encoding="utf-8") for path in (ROOT / "crates").glob("*/src/**/*.rs")
    )
    types = set(re.findall(r"\b(?:struct|enum) (\w+)", code))
    unknown = [
        word for word in words if not {name := word.title().replace(" ", ""), f"{name}s"} & types
    ]
    assert not unknown, f"no type has this name: {unknown}"


def test_each_type_of_a_message_on_its_way_has_a_reason() -> None:
    way = PAGE.partition("Its names on the way")[2].partition("\n## ")[0]
    decision = (ROOT / "docs" / "decisions" / "0015-types-of-a-message.md").read_text("utf-8")
    explained = set(re.findall(r"(?m)^\| `(\w+)` \|", decision))
    assert set(re.findall(r"`(\w+)`", way)) == explained
    crates = (path.read_text(encoding="utf-8") for path in ROOT.glob("crates/*/src/**/*.rs"))
    types = set(re.findall(r"pub(?:\(\w+\))? struct (\w+)", "\n".join(crates)))
    assert explained - types == set()
