"""Each row is saved when it is measured: one that fails takes no earlier one along."""

from __future__ import annotations

import importlib
import inspect
import os
import pkgutil
import re
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import benches.e2e
import pytest
from benches.e2e import __main__ as main_module
from benches.e2e import rivals, spark
from benches.e2e.consumers import rows as consumers
from benches.e2e.servers import Side
from benches.e2e.store import store_rows
from benches.results import read, rows_of
from benches.row import Row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from benches.e2e.rivals.plans import Plan


def finished(name: str) -> Row:
    return Row(name=name, what=name, unit="ms", target="", figures={"ours": [1.0]})


def test_a_row_is_saved_before_the_next_one_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(_: object) -> Iterator[Row]:
        yield finished("import")
        (saved,) = tmp_path.glob("*.json")
        assert list(rows_of(read(saved))) == ["import"]
        yield finished("start")
        raise RuntimeError("the row after them failed")

    monkeypatch.setattr(main_module, "measure", failing)
    monkeypatch.setattr(sys, "argv", ["e2e", "--out", str(tmp_path), "--rows", "import"])
    with pytest.raises(RuntimeError, match="the row after them failed"):
        main_module.main()
    (saved,) = tmp_path.iterdir()
    assert list(rows_of(read(saved))) == ["import", "start"]


def test_functions_of_rows_yield_each_row_when_it_is_measured() -> None:
    found: dict[str, Callable[..., object]] = {}
    for module in pkgutil.walk_packages(benches.e2e.__path__, "benches.e2e."):
        for name, value in vars(importlib.import_module(module.name)).items():
            if inspect.isfunction(value) and re.fullmatch(r"[a-z]\w*_rows", name):
                found[f"{value.__module__}.{value.__name__}"] = value
    found = {name: rows for name, rows in found.items() if name.startswith("benches.e2e.")}
    assert len(found) > 20
    assert [name for name, rows in found.items() if not inspect.isgeneratorfunction(rows)] == []


def test_a_rival_that_fails_takes_no_earlier_row_along(monkeypatch: pytest.MonkeyPatch) -> None:
    class Match:
        servers = dict.fromkeys(("ours", "apache"))

        def __init__(self, *_: object) -> None:
            pass

        def play(self, plan: Plan) -> Row:
            if plan.name == "java-futures":
                raise TimeoutError("no answer")
            return finished(plan.name)

    monkeypatch.setattr(rivals, "Match", Match)
    measured = rivals.rival_rows(1, names={"java-threads", "java-futures"})
    assert next(measured).name == "java-threads"
    with pytest.raises(TimeoutError, match="no answer"):
        next(measured)


def test_a_row_of_consumers_that_fails_takes_no_earlier_row_along(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def failing(*_: object) -> Iterator[Row]:
        yield finished("idle-pull-cpu")
        raise TimeoutError("no answer")

    monkeypatch.setitem(consumers.ROWS, "idle", failing)
    measured = consumers.consumer_rows({"idle"}, 1, 1.0)
    assert next(measured).name == "idle-pull-cpu"
    with pytest.raises(TimeoutError, match="no answer"):
        next(measured)


def test_a_row_of_spark_that_fails_takes_no_earlier_row_along(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Bench:
        spark = type("Session", (), {"stop": lambda _: None})()

        def __init__(self, *_: object) -> None:
            pass

        def plan(self, row: Row) -> None:
            row.add("ours", 1.0)

        def marks(self, _: Row) -> None:
            raise TimeoutError("no answer")

    @contextmanager
    def one_broker(**_: object) -> Iterator[object]:
        yield type("Cluster", (), {"brokers": [type("Broker", (), {"pid": os.getpid()})]})

    @contextmanager
    def started() -> Iterator[Side]:
        yield Side(name="kafka", name_server="127.0.0.1:1", broker_pid=os.getpid())

    monkeypatch.setattr(spark, "find_spec", lambda _: True)
    monkeypatch.setattr(spark, "cluster", one_broker)
    monkeypatch.setattr(spark, "kafka", started)
    monkeypatch.setattr(spark, "_session", lambda **_: None)
    monkeypatch.setattr(spark, "_Bench", Bench)
    measured = spark.spark_rows(1, 1.0, {"spark-plan", "spark-marks"})
    assert next(measured).name == "spark-plan"
    with pytest.raises(TimeoutError, match="no answer"):
        next(measured)


def test_the_lines_of_a_store_program_that_fails_are_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "store_bench"
    line = '{"row":"put_128","unit":"messages/s","values":[5]}'
    program.write_text(f"#!/bin/sh\necho '{line}'\nexit 3\n")
    program.chmod(0o700)
    monkeypatch.setattr("benches.e2e.store.build", lambda *_: None)
    monkeypatch.setattr("benches.e2e.store.binary", lambda _: program)
    measured = store_rows({"put"}, tmp_path, 1)
    assert next(measured).figures == {"ours": [5.0]}
    with pytest.raises(subprocess.CalledProcessError, match="exit status 3"):
        next(measured)
