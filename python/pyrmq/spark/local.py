"""A quiet Spark on this machine, for a first look and for tests."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import os
import re
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pyrmq.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["missing_parts", "session"]

_JAVA = 17
_MAJORS = {"pyspark": (4, 5), "pyarrow": (17, 10_000), "pandas": (2, 3)}
"""The lowest major version of each package, and the first that is too new."""
_QUIET = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
}


def missing_parts() -> str | None:
    """Return in one line what a local Spark lacks here; None if nothing.

    Example:
        >>> missing_parts() is None or "missing" in missing_parts()
        True
    """
    for module, (lowest, too_new) in _MAJORS.items():
        if importlib.util.find_spec(module) is None:
            return f"{module} is missing: pip install pyrmq-rocketmq[spark-local]"
        found = _version(module)
        if not lowest <= int(found.partition(".")[0]) < too_new:
            return (
                f"{module} {found} does not fit, expected {lowest} to {too_new - 1}:"
                " pip install pyrmq-rocketmq[spark-local]"
            )
    home = os.environ.get("JAVA_HOME")
    java = Path(home) / "bin" / "java" if home else None
    if java is None or not java.exists():
        on_path = shutil.which("java")
        if on_path is None:
            return f"Java is missing: install Java {_JAVA} or newer, or set JAVA_HOME"
        java = Path(on_path)
    version = _java_version(java)
    if version is not None and version < _JAVA:
        return f"Java {version} of {java} is too old: Spark needs {_JAVA} or newer (set JAVA_HOME)"
    return None


def _version(module: str) -> str:
    """Return a module's version; a Spark distribution has no metadata of its PySpark."""
    try:
        return importlib.metadata.version(module)
    except importlib.metadata.PackageNotFoundError:
        return str(getattr(importlib.import_module(module), "__version__", "0"))


def _java_version(java: Path) -> int | None:
    """Read a Java's version from its file, without starting it; None if there is no file."""
    try:
        text = (java.resolve().parent.parent / "release").read_text(encoding="utf-8")
    except OSError:
        return None
    # Java 8 reports 1.8.
    match = re.search(r'JAVA_VERSION="(?:1\.)?(\d+)', text)
    return None if match is None else int(match[1])


def session(master: str = "local[*]", **conf: str) -> SparkSession:
    """Start a local Spark that logs nothing, or return the running one.

    Its workers run this Python, so they find what is installed here.

    Args:
        master: ``local[*]`` for all cores, ``local[2]`` for two.
        conf: further settings; a name may have ``_`` instead of dots: ``spark_driver_memory="4g"``,
            ``**{"spark.driver.memory": "4g"}``.

    Raises:
        ConfigError: Java or a package is missing.

    Example:
        >>> spark = session()  # doctest: +SKIP
        >>> spark.read.format("rocketmq").load("orders").show()  # doctest: +SKIP
    """
    lacks = missing_parts()
    if lacks is not None:
        raise ConfigError(f"no local Spark: {lacks}")
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.master(master).appName("pyrmq")
    quiet = dict(_QUIET)
    if master.startswith("local"):
        # Its executors have the module in any case.
        quiet["spark.python.daemon.module"] = "pyrmq.spark.daemon"
    for name, value in (
        quiet | {key if "." in key else key.replace("_", "."): value for key, value in conf.items()}
    ).items():
        builder = builder.config(name, value)
    started = builder.getOrCreate()
    started.sparkContext.setLogLevel("OFF")
    return started
