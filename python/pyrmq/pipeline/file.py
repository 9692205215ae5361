"""A pipeline file: TOML, read and checked without Spark.

```toml
[source]                     # options of format("rocketmq"), and json, path, batch
topic = "orders"
json = "id BIGINT NOT NULL, total DOUBLE"

[[step]]                     # any number; each sees the one before as table `input`
sql = "SELECT *, total * 1.2 AS gross FROM input"

[quality]
where = "total > 0"
reject = "orders-rejected"   # a topic, or drop, or fail

[sink]
format = "parquet"           # parquet, delta, iceberg, topic, console
path = "lake/orders"

[spark]                      # master, and settings of Spark's
master = "local[*]"
```
"""

from __future__ import annotations

import difflib
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn

from pyrmq._tables.options.option_table import KNOWN, LOG, SINK
from pyrmq._tables.options.option_values import TOPIC_NAME
from pyrmq._tables.options.topic_options import ALIASES
from pyrmq.pipeline.errors import PipelineError
from pyrmq.pipeline.lines import Place, find_lines
from pyrmq.pipeline.options import as_text, check_options

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["FORMATS", "Pipeline", "Step", "load"]

FORMATS = ("parquet", "delta", "iceberg", "topic", "console")
_TABLES = ("source", "step", "quality", "sink", "spark")
_SOURCE_OWN = {"json": str, "path": str, "batch": bool}
_STEP = {"sql": str, "python": str, "args": dict}
_QUALITY = {"where": str, "reject": str}
_SINK_OWN = {
    "format": str,
    "path": str,
    "table": str,
    "partitionBy": list,
    "checkpoint": str,
    "mode": str,
    "options": dict,
}
_BATCH_MODES = ("errorifexists", "append", "overwrite", "error", "ignore", "default")
_STREAM_MODES = ("append", "complete", "update")
_KINDS = {str: "a string", bool: "true or false", list: "a list", dict: "a table"}


@dataclass(frozen=True)
class Step:
    """One step: SQL over table `input`, or a function of a frame by its import path.

    Example:
        >>> Step(sql="SELECT * FROM input").python is None
        True
    """

    sql: str | None = None
    python: str | None = None
    args: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """A pipeline as in its file. Paths are absolute: relative ones start at the file.

    Attributes:
        file: the file.
        name: its name, without the suffix if it is not given.
        source: options of ``format("rocketmq")``.
        batch: read once, from the earliest message on, instead of from a checkpoint.
        json: schema of JSON bodies; None for bodies as they are.
        steps: in order.
        where: condition that rows must meet; None for any.
        reject: where other rows go: ``drop``, ``fail``, or a topic.
        sink: format, and what belongs to it.
        spark: Spark settings, with ``master``.
    """

    file: Path
    name: str
    source: Mapping[str, str]
    batch: bool
    json: str | None
    steps: tuple[Step, ...]
    where: str | None
    reject: str
    sink: Mapping[str, Any]
    spark: Mapping[str, str]
    lines: Mapping[Place, int] = field(default_factory=dict, repr=False)

    @property
    def checkpoint(self) -> Path | str:
        """The directory of positions and the report."""
        given = self.sink.get("checkpoint")
        return given if given is not None else self.file.parent / f"{self.name}.checkpoint"

    def fail(self, table: str, key: str, problem: str, number: int = 0) -> NoReturn:
        """Raise an error with the line of a key."""
        _fail(str(self.file.name), self.lines, (table, number, key), problem)


def load(path: str | Path) -> Pipeline:
    """Read a pipeline file.

    Raises:
        PipelineError: the file cannot be read or has an error, with line and key.

    Example:
        >>> load("orders.toml").sink["format"]  # doctest: +SKIP
        'parquet'
    """
    file = Path(path).absolute()
    try:
        text = file.read_text(encoding="utf-8")
        content = tomllib.loads(text)
    except OSError as error:
        raise PipelineError(str(path), None, None, f"cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise PipelineError(str(path), None, None, f"is not UTF-8: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise PipelineError(file.name, None, None, f"not TOML: {error}") from error
    return _Reader(file, content, find_lines(text)).pipeline()


@dataclass
class _Reader:
    file: Path
    content: dict[str, Any]
    lines: dict[Place, int]

    def pipeline(self) -> Pipeline:
        self.known(self.content, ("name", *_TABLES), "")
        for table in ("source", "sink"):
            if not isinstance(self.content.get(table), dict):
                raise PipelineError(self.file.name, None, None, f"table [{table}] is missing")
        source, own = self.source()
        quality = self.table("quality", _QUALITY)
        spark = self.content.get("spark", {})
        if not isinstance(spark, dict):
            self.fail(("", 0, "spark"), "expected a table [spark]")
        made = Pipeline(
            file=self.file,
            name=str(self.content.get("name", self.file.stem)),
            source=source,
            batch=bool(own.get("batch", False)),
            json=own.get("json"),
            steps=tuple(self.steps()),
            where=quality.get("where"),
            reject=self.reject(quality),
            sink=self.sink(batch=bool(own.get("batch", False))),
            spark={name: as_text(value) for name, value in spark.items()},
            lines=self.lines,
        )
        check_options(made)
        return made

    def source(self) -> tuple[dict[str, str], dict[str, Any]]:
        given = self.content["source"]
        names = (*_SOURCE_OWN, *(LOG if "path" in given else KNOWN))
        aliases = {alias: name for alias, name in ALIASES.items() if alias not in _SOURCE_OWN}
        self.known(given, names, "source", aliases=aliases)
        self.scalars({k: v for k, v in given.items() if k not in _SOURCE_OWN}, "source")
        own = self.typed(
            {k: v for k, v in given.items() if k in _SOURCE_OWN}, _SOURCE_OWN, "source"
        )
        options = {name: as_text(value) for name, value in given.items() if name not in own}
        if "path" in own:
            options["path"] = self.absolute(own["path"])
            if not own.get("batch"):
                self.fail(("source", 0, "path"), "a directory is read as a whole: add batch = true")
        if not own.get("batch"):
            # A pipeline that is run again continues at its position, and starts with all messages.
            options.setdefault("startingOffsets", "earliest")
        return options, own

    def steps(self) -> Iterable[Step]:
        given = self.content.get("step", [])
        if not isinstance(given, list):
            self.fail(("step", 0, ""), "expected [[step]], with two brackets")
        for number, step in enumerate(given):
            self.known(step, tuple(_STEP), "step", number)
            self.typed(step, _STEP, "step", number)
            if ("sql" in step) == ("python" in step):
                self.fail(("step", number, ""), "expected either sql or python")
            if "python" in step and ":" not in step["python"]:
                self.fail(("step", number, "python"), "expected MODULE:FUNCTION")
            if "sql" in step and "args" in step:
                self.fail(("step", number, "args"), "belongs to a step in Python")
            yield Step(step.get("sql"), step.get("python"), step.get("args", {}))

    def reject(self, quality: Mapping[str, Any]) -> str:
        reject = str(quality.get("reject", "fail"))
        if not TOPIC_NAME.fullmatch(reject):
            self.fail(("quality", 0, "reject"), f"expected drop, fail or a topic: {reject!r}")
        return reject

    def sink(self, *, batch: bool) -> dict[str, Any]:
        given = self.content["sink"]
        topic_keys = () if given.get("format") != "topic" else tuple(SINK)
        self.known(given, (*_SINK_OWN, *topic_keys), "sink")
        self.typed({k: v for k, v in given.items() if k in _SINK_OWN}, _SINK_OWN, "sink")
        kind = given.get("format")
        if kind not in FORMATS:
            problem = f"expected one of {', '.join(FORMATS)}, found: {kind!r}"
            self.fail(("sink", 0, "format" if "format" in given else ""), f"format: {problem}")
        needed = {"parquet": "path", "delta": "path", "iceberg": "table"}.get(kind)
        if needed is not None and needed not in given:
            self.fail(("sink", 0, ""), f"{needed} is missing: format {kind} needs it")
        self.scalars({k: v for k, v in given.items() if k not in _SINK_OWN}, "sink")
        modes = _BATCH_MODES if batch else _STREAM_MODES
        if str(given.get("mode", modes[0])).lower() not in modes:
            self.fail(("sink", 0, "mode"), f"expected one of {', '.join(modes)}")
        made = dict(given)
        for key in ("path", "checkpoint"):
            if key in made:
                made[key] = self.absolute(made[key])
        return made

    def table(self, name: str, kinds: Mapping[str, type]) -> dict[str, Any]:
        given = self.content.get(name, {})
        if not isinstance(given, dict):
            self.fail((name, 0, ""), f"expected a table [{name}]")
        self.known(given, tuple(kinds), name)
        return self.typed(given, kinds, name)

    def scalars(self, given: Mapping[str, Any], table: str) -> None:
        for key, value in given.items():
            if not isinstance(value, str | int | float):
                self.fail((table, 0, key), f"expected a string or a number, found: {value!r}")

    def known(
        self,
        given: Mapping[str, Any],
        names: tuple[str, ...],
        table: str,
        number: int = 0,
        aliases: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        for key in given:
            if key not in names and key.lower() not in aliases:
                near = difflib.get_close_matches(key, names, n=1, cutoff=0.5)
                hint = f"did you mean {near[0]}?" if near else f"known are: {', '.join(names)}"
                place = (table, number, key) if table or key not in _TABLES else (key, 0, "")
                if not table and (key, 0, "") in self.lines:
                    place = (key, 0, "")
                self.fail(place, f"unknown, {hint}", key=key)

    def typed(
        self, given: Mapping[str, Any], kinds: Mapping[str, type], table: str, number: int = 0
    ) -> dict[str, Any]:
        for key, value in given.items():
            if not isinstance(value, kinds[key]):
                self.fail((table, number, key), f"expected {_KINDS[kinds[key]]}, found: {value!r}")
        return dict(given)

    def absolute(self, path: str) -> str:
        return path if "://" in path else str(self.file.parent / path)

    def fail(self, place: Place, problem: str, *, key: str | None = None) -> NoReturn:
        _fail(self.file.name, self.lines, place, problem, key=key)


def _fail(
    file: str, lines: Mapping[Place, int], place: Place, problem: str, *, key: str | None = None
) -> NoReturn:
    table, number, name = place
    line = lines.get(place, lines.get((table, number, "")))
    shown = f"{table}.{name}" if table and name else table or name or key
    if table == "step":
        shown = f"step {number + 1}" + (f".{name}" if name else "")
    raise PipelineError(file, line, shown, problem)
