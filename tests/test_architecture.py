"""Enforces the graph of crates in ARCHITECTURE.md, and the sizes of files."""

from __future__ import annotations

import ast
import json
import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tests.rust_source import (
    Module,
    import_circles,
    product_code,
    rust_edges,
    rust_functions,
    upward_imports,
)

ROOT = Path(__file__).resolve().parent.parent

CRATES: dict[str, set[str]] = {
    "remoting": set(),
    "auth": {"remoting"},
    "routing": {"remoting"},
    "store": {"remoting"},
    "nameserver": {"routing", "remoting"},
    "broker": {"store", "routing", "remoting"},
    "columns": {"remoting"},
    "client": {"auth", "columns", "routing", "remoting"},
    "bindings": {
        *("auth", "nameserver", "broker", "client", "columns", "remoting", "routing", "store"),
    },
    "testkit": {"remoting", "store"},
}

# The order of the modules and folders inside a crate, or inside one of its folders
# (`crate/folder`), lowest first: each uses only those before it.
FOLDERS: dict[str, list[str]] = {
    "auth": [
        *("error", "nearest", "members", "secret", "shortened", "resource", "signature"),
        *("policy", "requests", "audience", "audit", "rules", "guard", "admin", "plain"),
    ],
    "bindings": [
        *("errors", "runtime", "enter", "json", "log", "records", "routing", "command"),
        *("tls", "security", "connections", "request_many", "server", "received", "completion"),
        *("consumer", "log_files", "producer"),
    ],
    "broker": [
        *("error", "block_in_place", "admission", "options", "stats", "tables", "message"),
        *("delivery", "pop", "long_polling", "announcements", "context", "processor", "metrics"),
        *("retention", "registration", "ports"),
        "broker",
    ],
    "client": ["error", "session", "producer", "consumer", "reader"],
    "client/consumer": [
        *("options", "process_queue", "callbacks", "failure_counts", "rates", "requests", "pop"),
        "shared",
        *("commits", "pulling", "rebalance", "broker_requests", "puller", "listener"),
    ],
    "columns": ["layout", "build", "columns", "tags", "rows"],
    "nameserver": [
        *("error", "notify", "options", "registration_queue", "context", "processor"),
        *("registration_thread", "rows", "server"),
    ],
    "remoting": [
        *("error", "clock", "codes", "hash", "names", "setting", "sync", "meter", "chunk", "text"),
        *("fields", "scan", "command", "header", "frame", "message", "body", "net"),
    ],
    "remoting/net": [
        *("error", "code_set", "stats", "shutdown", "options", "limits", "audit"),
        *("request_log", "socket"),
        *("link", "hooks", "table", "connection", "server", "client", "faulty_link"),
    ],
    "routing": ["fault", "select", "route", "allocate", "filter", "table"],
    "store": [
        *("error", "format", "delay", "options", "stats", "live", "failure", "fs"),
        *("group_commit", "message", "config_file", "descriptors", "checkpoint"),
        *("log", "queue", "scan", "index", "state", "dispatch", "flush", "append", "read"),
        *("retention", "engine", "recovery", "maintenance", "store", "timer"),
    ],
}

FILE_LINES = {".rs": 400, ".py": 300, ".pyi": 300, ".js": 300}
FUNCTION_LINES, FOLDER_FILES = 60, 15

CLASS = "one class, whose public verbs are most of it"
TOOL = "a tool that is read from top to bottom, not a part"
MACHINE = "one state machine, whose steps share each field"
KIND = "one list of one kind of thing"
STUB = "python/pyrmq/_core.pyi"
LONG_FILES: dict[str, str] = {
    "crates/auth/src/requests.rs": KIND,
    "crates/bindings/src/errors.rs": "one arm for each error, without a catch-all",
    "crates/broker/src/processor/rows.rs": KIND,
    "crates/client/examples/broker_load.rs": TOOL,
    "crates/remoting/src/net/connection/mod.rs": MACHINE,
    "crates/store/examples/store_bench/main.rs": TOOL,
    "crates/store/src/fs/real.rs": "all unsafe code of the crate is in this file",
    "crates/testkit/src/sim.rs": "one disk; every call of a file system once more",
    "python/pyrmq/_admin/groups.py": CLASS,
    STUB: "type checkers take the stub of a native module as one file",
    "python/pyrmq/_client/options/consumer.py": KIND,
    "python/pyrmq/admin.py": CLASS,
    "python/pyrmq/aio/consumer.py": CLASS,
    "python/pyrmq/aio/producer.py": CLASS,
    "python/pyrmq/aio/push.py": CLASS,
    "python/pyrmq/config/broker.py": KIND,
    "python/pyrmq/consumer/listener.py": CLASS,
    "python/pyrmq/consumer/pull.py": CLASS,
    "python/pyrmq/consumer/push.py": CLASS,
    "python/pyrmq/consumer/subscriptions.py": CLASS,
    "python/pyrmq/doctor/probes.py": KIND,
    "python/pyrmq/errors.py": KIND,
    "python/pyrmq/producer.py": CLASS,
    "python/pyrmq/_tables/planning/progress.py": "pure arithmetic with its examples",
    "python/pyrmq/_tables/brokers/remote.py": CLASS,
    "tests/e2e/test_push.py": "one class under test",
    "tests/test_words.py": KIND,
}
"""Files above the signal, and why they stay whole."""

LONG_FUNCTIONS: dict[str, str] = {
    "crates/broker/src/processor/rows.rs table": KIND,
    "crates/client/src/consumer/pulling.rs pulled": "holds one lock for each answer",
    "crates/client/src/producer/accumulator/put.rs accept": "holds one lock for each message",
    "crates/store/examples/store_bench/main.rs sync": TOOL,
    "crates/store/src/options/mod.rs ranges": KIND,
}
"""Rust functions above the signal, and why they stay whole."""

TESTS = "one file for each thing under test"
WIDE_FOLDERS: dict[str, str] = {
    "benches/e2e": "one file for the rows of each area",
    "crates/broker/src/processor": "one file for each family of requests",
    "crates/broker/tests": TESTS,
    "crates/remoting/src/body": "one file for each family of bodies",
    "crates/remoting/src/header": "one file for each family of headers",
    "crates/remoting/tests": TESTS,
    "crates/store/tests": TESTS,
    "tests/e2e": TESTS,
    "tests/interop": TESTS,
    "tests/spark": TESTS,
    "tests/unit": TESTS,
}
"""Folders with more source files than the signal, and why they stay whole."""


def _metadata() -> list[dict[str, object]]:
    done = subprocess.run(
        ["cargo", "metadata", "--format-version", "1", "--no-deps"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    packages: list[dict[str, object]] = json.loads(done.stdout)["packages"]
    return packages


def _wrong_crate_edges(packages: list[dict[str, object]]) -> list[str]:
    wrong = []
    for package in packages:
        name = str(package["name"]).removeprefix("pyrmq-")
        dependencies = package["dependencies"]
        assert isinstance(dependencies, list)
        for dependency in dependencies:
            used = str(dependency["name"])
            if not used.startswith("pyrmq-"):
                continue
            used = used.removeprefix("pyrmq-")
            if dependency["kind"] == "dev" and used in {"testkit", "remoting"}:
                continue
            if used not in CRATES[name]:
                wrong.append(f"{name} -> {used}")
    return wrong


def test_a_crate_uses_only_the_crates_below_it() -> None:
    packages = _metadata()
    assert {str(package["name"]).removeprefix("pyrmq-") for package in packages} == set(CRATES)
    wrong = _wrong_crate_edges(packages)
    assert not wrong, f"forbidden crate edges: {wrong}"


def test_the_scan_sees_a_forbidden_crate_edge() -> None:
    packages = _metadata()
    store = next(package for package in packages if package["name"] == "pyrmq-store")
    assert isinstance(store["dependencies"], list)
    # A test may use the test kit, the library may not; neither may use a crate above it.
    store["dependencies"] += [
        {"name": "pyrmq-testkit", "kind": "dev"},
        {"name": "pyrmq-testkit", "kind": None},
        {"name": "pyrmq-broker", "kind": "dev"},
    ]
    assert _wrong_crate_edges(packages) == ["store -> testkit", "store -> broker"]


def _unused_crate_edges(crates: Path) -> list[str]:
    """Edges of the graph that no product code of the crate uses."""
    unused = []
    for crate, allowed in CRATES.items():
        code = "".join(product_code(path) for path in (crates / crate / "src").rglob("*.rs"))
        used = set(re.findall(r"\bpyrmq_(\w+)::", re.sub(r"//[^\n]*", "", code)))
        unused += [f"{crate} -> {name}" for name in sorted(allowed - used)]
    return unused


def test_each_crate_edge_is_used() -> None:
    unused = _unused_crate_edges(ROOT / "crates")
    assert not unused, f"edges that no code uses, take them out of the graph: {unused}"


def test_the_scan_sees_an_unused_crate_edge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "store" / "src"
    source.mkdir(parents=True)
    (source / "lib.rs").write_text("// pyrmq_routing::Filter\nuse pyrmq_remoting::names;\n")
    monkeypatch.setitem(globals(), "CRATES", {"store": {"remoting", "routing"}})
    assert _unused_crate_edges(tmp_path) == ["store -> routing"]


def test_no_crate_can_reach_files_past_the_store_by_tokio() -> None:
    """clippy.toml bans `std::fs`; tokio's file calls are not even compiled."""
    turned_on = {
        (str(package["name"]), feature)
        for package in _metadata()
        for dependency in package["dependencies"]  # type: ignore[attr-defined]
        if dependency["name"] == "tokio"
        for feature in dependency["features"]
    }
    assert ("pyrmq-remoting", "net") in turned_on
    assert not {(crate, feature) for crate, feature in turned_on if feature in {"fs", "full"}}


def test_only_bindings_knows_pyo3() -> None:
    users = {
        str(package["name"])
        for package in _metadata()
        for dependency in package["dependencies"]  # type: ignore[attr-defined]
        if dependency["name"] == "pyo3"
    }
    assert users == {"pyrmq-bindings"}


def _sources() -> list[Path]:
    done = subprocess.run(
        ["git", "ls-files", "--", *(f"*{suffix}" for suffix in FILE_LINES)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return [path for line in done.stdout.splitlines() if (path := ROOT / line).exists()]


def _code_lines(path: Path) -> int:
    text = product_code(path) if path.suffix == ".rs" else path.read_text(encoding="utf-8")
    return text.count("\n")


def _above_signal(path: Path) -> str | None:
    signal = FILE_LINES[path.suffix]
    if "tests" in path.parts or "benches" in path.parts:
        signal *= 2
    lines = _code_lines(path)
    name = path.relative_to(ROOT)
    assert lines <= 2 * signal or str(name) == STUB, (
        f"{name} has {lines} lines, twice the signal of {signal}: split it by noun"
    )
    # A tenth more is no reason to split.
    above = 10 * lines > 11 * signal
    return f"{name} has {lines} lines, the signal is {signal}" if above else None


def test_long_files_are_named_with_a_reason() -> None:
    above = {
        str(path.relative_to(ROOT)): text for path in _sources() if (text := _above_signal(path))
    }
    unnamed = [text for name, text in above.items() if name not in LONG_FILES]
    assert not unnamed, f"split them by noun, or name them in LONG_FILES: {unnamed}"
    short = sorted(set(LONG_FILES) - set(above))
    assert not short, f"no longer above the signal, take them out of LONG_FILES: {short}"


def _python_functions(text: str) -> list[tuple[str, int]]:
    """Functions and their lines, without docstrings: in Rust, too, those stand outside."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if ast.get_docstring(node) is not None:
                lines -= (node.body[0].end_lineno or 0) - node.body[0].lineno + 1
            found.append((node.name, lines))
    return found


def test_python_functions_fit_on_a_page() -> None:
    long = []
    for path in _sources():
        name = path.relative_to(ROOT)
        if path.suffix != ".py":
            continue
        # A test is read from top to bottom.
        limit = FUNCTION_LINES * (2 if name.parts[0] == "tests" else 1)
        for function, lines in _python_functions(path.read_text(encoding="utf-8")):
            if lines > limit:
                long.append(f"{name} {function} has {lines} lines, the limit is {limit}")
    assert not long, f"split them by noun: {long}"


def test_the_scan_measures_python_functions() -> None:
    text = '''
class Short:
    async def given(
        self,
    ) -> None:
        """A docstring

        of three lines."""
        def inner() -> None: ...
        inner()
'''
    assert sorted(_python_functions(text)) == [("given", 5), ("inner", 1)]


def test_long_rust_functions_are_named_with_a_reason() -> None:
    above = {}
    for path in _sources():
        name = path.relative_to(ROOT)
        if path.suffix != ".rs" or name.parts[2] not in {"src", "examples"}:
            continue
        for function, lines in rust_functions(product_code(path)):
            assert lines <= 2 * FUNCTION_LINES, f"{name} {function} has {lines} lines: split it"
            if lines > FUNCTION_LINES:
                above[f"{name} {function}"] = lines
    unnamed = {name: lines for name, lines in above.items() if name not in LONG_FUNCTIONS}
    assert not unnamed, f"split them by noun, or name them in LONG_FUNCTIONS: {unnamed}"
    short = sorted(set(LONG_FUNCTIONS) - set(above))
    assert not short, f"no longer above the signal, take them out of LONG_FUNCTIONS: {short}"


def test_the_scan_measures_rust_functions() -> None:
    text = """
pub(crate) async fn long<T>(
    one: T,
) -> T
where
    T: Clone,
{
    const fn inner() {}
    if true {
        one
    }
}
trait Short {
    fn declared(&self);
    fn given(&self) {
        self.declared();
    }
}
"""
    assert rust_functions(text) == [("long", 11), ("given", 3)]


def _wide_folders(sources: list[Path]) -> dict[str, int]:
    """Folders with more source files than the signal; files of names do not count."""
    names = {"mod.rs", "lib.rs", "__init__.py"}
    folders = Counter(path.parent for path in sources if path.name not in names)
    return {
        str(folder.relative_to(ROOT)): files
        for folder, files in folders.items()
        if files > FOLDER_FILES
    }


def test_wide_folders_are_named_with_a_reason() -> None:
    wide = _wide_folders(_sources())
    unnamed = {folder: files for folder, files in wide.items() if folder not in WIDE_FOLDERS}
    assert not unnamed, f"split them by noun, or name them in WIDE_FOLDERS: {unnamed}"
    narrow = sorted(set(WIDE_FOLDERS) - set(wide))
    assert not narrow, f"no longer above the signal, take them out of WIDE_FOLDERS: {narrow}"


def test_the_scan_counts_a_folders_own_files_only() -> None:
    folder = ROOT / "crates" / "x" / "src" / "net"
    files = [folder / f"{name}.rs" for name in "abcdefghijklmno"]
    files += [folder / "mod.rs", folder / "deeper" / "p.rs"]
    assert _wide_folders(files) == {}
    assert _wide_folders([*files, folder / "q.rs"]) == {"crates/x/src/net": 16}


def test_names_files_hold_names_only() -> None:
    for path in (ROOT / "crates").glob("*/src/lib.rs"):
        bodies = re.findall(
            r"^(?:pub )?(?:async )?fn ", path.read_text(encoding="utf-8"), re.MULTILINE
        )
        assert not bodies, f"{path.relative_to(ROOT)} defines functions: lib.rs holds names only"


@pytest.mark.parametrize("crate", sorted(CRATES))
def test_no_import_circle_has_more_than_two_files(crate: str) -> None:
    circles = import_circles(rust_edges(ROOT / "crates" / crate / "src"))
    large = [sorted("/".join(module) for module in group) for group in circles if len(group) > 2]
    assert not large, f"import circles: {large}"


def test_the_scan_sees_an_import_circle(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "lib.rs").write_text("mod a;\nmod b;\n")
    (tmp_path / "a.rs").write_text("use crate::b::{self, inner::{C, D}};\n")
    (tmp_path / "b" / "mod.rs").write_text("mod inner;\n// use crate::a::No;\n")
    (tmp_path / "b" / "inner.rs").write_text("fn f() { super::other::g() }\n")
    (tmp_path / "b" / "other.rs").write_text("use crate::a::A;\n")
    assert import_circles(rust_edges(tmp_path)) == [{("a",), ("b", "inner"), ("b", "other")}]


def test_the_scan_sees_through_re_exports(tmp_path: Path) -> None:
    (tmp_path / "lib.rs").write_text("mod a;\nmod b;\npub use b::{C as D, inner};\n")
    (tmp_path / "a.rs").write_text("use crate::{D, inner::E};\n")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "mod.rs").write_text("mod inner;\npub use inner::C;\n")
    (tmp_path / "b" / "inner.rs").write_text("use self::x::Y;\nuse super::C;\n")
    assert rust_edges(tmp_path) == {
        (): set(),
        ("a",): {("b", "inner")},
        ("b",): set(),
        ("b", "inner"): set(),
    }


def _inside(folder: Module, edges: dict[Module, set[Module]]) -> dict[Module, set[Module]]:
    """The imports among the modules of one folder, their paths without the folder's."""
    depth = len(folder)
    return {
        module[depth:]: {other[depth:] for other in used if other[:depth] == folder} - {()}
        for module, used in edges.items()
        if module[:depth] == folder
    }


def test_each_crate_has_an_order() -> None:
    assert {place.partition("/")[0] for place in FOLDERS} == set(CRATES) - {"testkit"}


@pytest.mark.parametrize("place", sorted(FOLDERS))
def test_imports_inside_a_crate_point_down(place: str) -> None:
    crate, *folder = place.split("/")
    edges = _inside(tuple(folder), rust_edges(ROOT / "crates" / crate / "src"))
    assert {module[0] for module in edges if module} == set(FOLDERS[place])
    upward = upward_imports(FOLDERS[place], edges)
    assert not upward, f"imports that point up: {upward}"


def test_the_scan_sees_an_import_that_points_up() -> None:
    edges: dict[tuple[str, ...], set[tuple[str, ...]]] = {
        (): {("read",)},
        ("log", "segment"): {("fs",), ("log",), ("read", "query")},
        ("read",): {("log", "segment")},
        ("new",): set(),
    }
    assert upward_imports(["fs", "log", "read"], edges) == [
        "log/segment -> read/query",
        "new (not in the order: add it to FOLDERS)",
    ]


def test_the_scan_sees_an_upward_import_between_the_folders_of_a_folder() -> None:
    edges: dict[Module, set[Module]] = {
        ("net",): {("frame",)},
        ("net", "peer"): {("frame",), ("net",), ("net", "server", "opening")},
        ("net", "server", "opening"): {("net", "peer")},
    }
    inside = _inside(("net",), edges)
    assert inside == {
        (): set(),
        ("peer",): {("server", "opening")},
        ("server", "opening"): {("peer",)},
    }
    assert upward_imports(["peer", "server"], inside) == ["peer -> server/opening"]


@pytest.mark.parametrize("crate", ["bindings", "client"])
def test_no_static_lock_waits_for_a_forked_child(crate: str) -> None:
    """A lock that another thread holds during a fork stays locked in the child for ever."""
    for path in (ROOT / "crates" / crate / "src").rglob("*.rs"):
        found = re.findall(r"static \w+: (?:Mutex|RwLock)<.*", product_code(path))
        assert not found, f"{path.relative_to(ROOT)}: {found}"


def test_unsafe_code_stays_where_it_is_named() -> None:
    """The compiler denies it; these files may expect it, each block with its reason."""
    named = {
        "bindings/src/consumer/columns.rs",
        "bindings/src/runtime.rs",
        "auth/tests/allocation.rs",
        "remoting/tests/allocation.rs",
        "routing/tests/filter_allocation.rs",
        "store/src/fs/real.rs",
    }
    crates = ROOT / "crates"
    found = {
        str(path.relative_to(crates))
        for path in crates.rglob("*.rs")
        if re.search(r"\bunsafe (\{|fn|impl|trait|extern)", path.read_text())
    }
    assert found == named


def test_only_testing_asks_for_faults() -> None:
    """No other module can bring a faulty disk or link into a program."""
    base = ROOT / "python" / "pyrmq"
    asks = re.compile(r"_core\.(Disk|Links?)\b|\.start_on\(")
    users = {
        path.relative_to(base).parts[0]
        for path in base.rglob("*.py")
        if asks.search(path.read_text(encoding="utf-8"))
    }
    assert users == {"testing"}
    crates = {
        path.relative_to(ROOT / "crates").parts[0]
        for path in (ROOT / "crates").rglob("src/**/*.rs")
        if re.search(r"FaultyFs::new|FaultyLink::(bind|start)\(", path.read_text(encoding="utf-8"))
    }
    assert crates == {"bindings"}
