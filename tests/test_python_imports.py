"""Enforces the graph of Python packages in ARCHITECTURE.md.

Its places are the modules and folders of `pyrmq`, and the packages beside it.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.rust_source import upward_imports

ROOT = Path(__file__).resolve().parent.parent

# The order of a package's modules and folders, lowest first: each uses only those before it.
PACKAGES: dict[str, list[str]] = {
    "_client": [
        *(
            "log_output",
            "log",
            "failure_log",
            "values",
            "stats",
            "consumer_stats",
            "identities",
            "arrow",
            "hooks",
            "futures",
        ),
        *("ending", "security", "options"),
    ],
    "_tables": [
        *("errors", "namespace", "schema", "kafka", "offsets", "options", "messages", "sender"),
        *("planning", "brokers", "logs", "batch", "worker"),
    ],
    "cli": [
        *("arguments", "output", "times", "log", "store", "bench", "broker", "message", "table"),
        *("debug", "servers", "topics", "groups", "doctor", "dashboard", "secure", "pipeline"),
        *("spark", "main", "completion"),
    ],
    "spark": [
        *("errors", "unavailable", "local", "daemon", "shipping", "json_bodies", "query", "checks"),
        *("progress", "reading", "writing", "table_function", "source"),
    ],
    "server": [
        *("files", "requests", "process", "processors", "options", "security", "metrics", "load"),
        *("lifecycle", "foreground"),
    ],
}

# What any part may use.
BASE = {"errors", "message", "codes", "_names", "_client", "_core"}
PYTHON: dict[str, set[str]] = {
    "_core": set(),
    "_names": set(),
    "codes": set(),
    "errors": set(),
    "message": {"errors", "_names", "_core"},
    "_client": {"errors", "message", "_names", "_core"},
    "config": {"errors", "_names"},
    "remoting": BASE,
    "routing": BASE,
    "otel": BASE,
    "server": BASE | {"config"},
    "nameserver": BASE | {"config", "server"},
    "broker": BASE | {"config", "server"},
    "_request_reply": BASE,
    "producer": BASE | {"_request_reply"},
    "transaction": BASE | {"producer"},
    "consumer": BASE | {"remoting", "producer"},
    "_admin": BASE | {"remoting"},
    "admin": BASE | {"remoting", "_admin"},
    "doctor": BASE | {"config", "remoting"},
    "dashboard": BASE | {"config", "server", "remoting", "consumer", "_admin", "admin"},
    "aio": BASE | {"_request_reply", "transaction", "consumer"},
    "_tables": BASE | {"remoting", "producer", "admin"},
    "arrow": BASE | {"producer", "_tables"},
    "spark": BASE | {"producer", "admin", "_tables"},
    "pipeline": BASE | {"admin", "_tables", "spark"},
    "testing": BASE | {"config", "server", "nameserver", "broker", "spark"},
    "cli": BASE
    | {"config", "server", "nameserver", "broker", "remoting", "routing", "producer", "consumer"}
    | {"admin", "arrow", "spark", "pipeline", "doctor", "dashboard"},
    "pyrmq_rocketmq": {"cli"},
    "pyspark_rocketmq": {"spark"},
}


def _beside() -> set[str]:
    """Packages of ours beside `pyrmq`."""
    packages = {path.parent.name for path in (ROOT / "python").glob("*/__init__.py")}
    return packages - {"pyrmq"}


def _python_edges() -> dict[str, set[str]]:
    edges: dict[str, set[str]] = {}
    base = ROOT / "python"
    known = re.compile("|".join([r"pyrmq\.(\w+)", *(rf"({name})\b" for name in _beside())]))
    for path in base.rglob("*.py"):
        relative = path.relative_to(base)
        package, *inner = relative.parts
        place = inner[0].removesuffix(".py") if package == "pyrmq" else package
        if place in {"__init__", "__main__"}:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names: list[str] = []
            if isinstance(node, ast.Call) and "import" in ast.unparse(node.func):
                # import_module("pyrmq.broker"); other dotted strings name loggers.
                constants = [a for a in node.args if isinstance(a, ast.Constant)]
                names = [str(constant.value) for constant in constants]
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"relative import in {relative}"
                module = node.module or ""
                names = (
                    [f"pyrmq.{alias.name}" for alias in node.names]
                    if module == "pyrmq"
                    else [module]
                )
            for name in names:
                match = known.match(name)
                used = next(filter(None, match.groups()), place) if match else place
                if used != place:
                    edges.setdefault(place, set()).add(used)
    return edges


def _is_module(name: str) -> bool:
    base = ROOT / "python" / "pyrmq"
    is_file = name == "_core" or (base / f"{name}.py").exists()
    return is_file or (base / name).is_dir() or name in _beside()


def test_a_python_package_imports_only_what_stands_below_it() -> None:
    wrong = []
    for place, used in _python_edges().items():
        if place not in PYTHON:
            wrong.append(f"{place} (not in the graph: name it in ARCHITECTURE.md and here)")
            continue
        wrong += [
            f"{place} -> {name}"
            for name in sorted(used)
            if _is_module(name) and name not in PYTHON[place]
        ]
    assert not wrong, f"forbidden imports: {wrong}"


def _unused_python_edges() -> list[str]:
    """Edges of the graph above `BASE` that no import uses."""
    edges = _python_edges()
    return [
        f"{place} -> {name}"
        for place, allowed in PYTHON.items()
        for name in sorted(allowed - (BASE if allowed >= BASE else set()))
        if name not in edges.get(place, set())
    ]


def test_each_edge_between_python_packages_is_used() -> None:
    unused = _unused_python_edges()
    assert not unused, f"edges that no import uses, take them out of the graph: {unused}"


def test_the_scan_sees_a_forbidden_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "python" / "pyrmq" / "server"
    package.mkdir(parents=True)
    (package / "wrong.py").write_text("from pyrmq.broker import Broker\n")
    (package.parent / "broker.py").write_text("")
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    assert _python_edges() == {"server": {"broker"}}
    with pytest.raises(AssertionError, match="server -> broker"):
        test_a_python_package_imports_only_what_stands_below_it()
    (package / "wrong.py").write_text('import_module("pyrmq.broker")\n')
    assert _python_edges() == {"server": {"broker"}}


def test_the_scan_sees_imports_of_and_by_packages_beside_pyrmq(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in ("pyrmq", "pyspark_rocketmq"):
        (tmp_path / "python" / package).mkdir(parents=True)
        (tmp_path / "python" / package / "__init__.py").write_text("")
    (tmp_path / "python" / "pyrmq" / "broker.py").write_text("import pyspark_rocketmq\n")
    spark = tmp_path / "python" / "pyspark_rocketmq" / "wrong.py"
    spark.write_text("def late():\n    from pyrmq.broker import Broker\n")
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    with pytest.raises(AssertionError) as raised:
        test_a_python_package_imports_only_what_stands_below_it()
    assert "pyspark_rocketmq -> broker" in str(raised.value)
    assert "broker -> pyspark_rocketmq" in str(raised.value)


def test_the_scan_sees_an_unused_python_edge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "python" / "pyrmq"
    package.mkdir(parents=True)
    (package / "server.py").write_text("from pyrmq.errors import RmqError\n")
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    monkeypatch.setitem(globals(), "PYTHON", {"server": BASE | {"config"}, "config": {"errors"}})
    assert _unused_python_edges() == ["server -> config", "config -> errors"]


def _package_edges(package: str) -> dict[tuple[str, ...], set[tuple[str, ...]]]:
    """Which modules of a Python package use which, names that only types need included."""
    base = ROOT / "python" / "pyrmq" / package
    prefix = f"pyrmq.{package}"
    edges: dict[tuple[str, ...], set[tuple[str, ...]]] = {}
    for path in base.rglob("*.py"):
        if path.name == "__init__.py":
            continue
        used = edges.setdefault(path.relative_to(base).with_suffix("").parts, set())
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.ImportFrom) or not node.module:
                continue
            if node.module == prefix:
                used |= {(alias.name,) for alias in node.names}
            elif node.module.startswith(f"{prefix}."):
                used.add(tuple(node.module.removeprefix(f"{prefix}.").split(".")))
    return edges


@pytest.mark.parametrize("package", sorted(PACKAGES))
def test_imports_inside_a_python_package_point_down(package: str) -> None:
    edges = _package_edges(package)
    assert {module[0] for module in edges} == set(PACKAGES[package])
    upward = upward_imports(PACKAGES[package], edges)
    assert not upward, f"imports that point up: {upward}"


def test_tables_know_no_spark() -> None:
    """So `pyrmq.arrow` works where pyspark is not installed."""
    users = {
        str(path.relative_to(ROOT))
        for package in ("_tables", "arrow")
        for path in (ROOT / "python" / "pyrmq" / package).rglob("*.py")
        if re.search(r"(from|import) pyspark", path.read_text(encoding="utf-8"))
    }
    assert not users, f"they import pyspark: {users}"
