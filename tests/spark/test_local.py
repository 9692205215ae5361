"""What a local Spark lacks is said in one line."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pyrmq.errors import ConfigError
from pyrmq.spark import local
from tests.spark.conftest import has_limits

pytest.importorskip("pyspark")
ROOT = Path(__file__).resolve().parents[2]


def java_of(folder: Path, version: str) -> Path:
    """Make a directory that looks like a Java."""
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "java").touch()
    (folder / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return folder


@pytest.mark.parametrize(("found", "number"), [("1.8.0_392", 8), ("11.0.2", 11)])
def test_a_java_that_is_too_old_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: str, number: int
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java_of(tmp_path / "java", found)))
    with pytest.raises(ConfigError, match=f"no local Spark: Java {number} of .* is too old"):
        local.session()


def test_a_java_that_is_new_enough_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java_of(tmp_path / "java", "21.0.1")))
    assert local.missing_parts() is None


@pytest.mark.parametrize("package", ["pandas", "pyarrow", "pyspark"])
def test_no_java_and_packages_that_do_not_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert local.missing_parts() == ("Java is missing: install Java 17 or newer, or set JAVA_HOME")
    monkeypatch.setitem(local._MAJORS, package, (1, 2))
    lacks = local.missing_parts()
    assert lacks is not None
    assert lacks.startswith(f"{package} {importlib.metadata.version(package)} does not fit")


def test_the_fixture_with_spark_is_skipped_where_java_is_missing(tmp_path: Path) -> None:
    (tmp_path / "test_orders.py").write_text("def test_orders(rocketmq_spark):\n    pass\n")
    env = {name: text for name, text in os.environ.items() if name != "JAVA_HOME"}
    env |= {"PATH": str(tmp_path), "PYTHONPATH": str(ROOT / "python")}
    # A checkout has no entry point that could load the plugin.
    plugins = ["-p", "pyrmq.testing.plugin", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rs", *plugins],
        cwd=tmp_path,
        env={**env, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=25,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if "Java is missing" in line]
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(lines) == 1
    assert "no local Spark: Java is missing: install Java 17 or newer" in lines[0]


def test_a_pyspark_of_a_spark_distribution_has_no_metadata(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is in a zip next to the JVM's files, where pip does not know of it."""
    monkeypatch.setenv("JAVA_HOME", str(java_of(tmp_path / "java", "21.0.1")))
    known = importlib.metadata.version

    def version(name: str) -> str:
        if name == "pyspark":
            raise importlib.metadata.PackageNotFoundError(name)
        return known(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    assert local.missing_parts() is None


@pytest.mark.parametrize(
    ("release", "has"), [("4.1.1", False), ("4.2.0", True), ("4.10.0.dev1", True), ("5.0.0", True)]
)
def test_which_spark_limits_batches(release: str, *, has: bool) -> None:
    assert has_limits(release) is has
