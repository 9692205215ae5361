"""Run tests/spark on other releases of PySpark: `spark_versions.py [--install-only] [VERSION ...]`.

Without a version: the newest 4.1.x, and the newest of all in the package index. Each release is
installed apart from the environment, into target/pyspark/4.1 and so on, and comes first on the
path; a newer release of the same line replaces it. 4.1 stands for the newest 4.1.x. The exit status
is that of the first run that failed.
"""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import sys
from pathlib import Path

from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).resolve().parent.parent
VERSIONS = ("==4.1.*", ">=4.1,<5")
"""The oldest release line that is supported, and all of them; of each the newest release."""

ELSEWHERE = (
    "test_elsewhere.py",
    "test_memory.py",
    "test_real.py",
    "test_same_rows.py",
    "test_torture.py",
    "test_query.py::test_a_query_gives_what_it_gives_with_all_columns[queries1]",
)
"""Tests that other parts of the nightly run have, with the gate's release."""


def releases() -> list[str]:
    """Return the releases of PySpark in the package index, the newest first; none if offline."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    done = subprocess.run(
        [*pip, "index", "versions", "pyspark"], capture_output=True, text=True, check=False
    )
    head = "Available versions:"
    lines = (line for line in done.stdout.splitlines() if line.startswith(head))
    return next(lines, head).removeprefix(head).replace(",", " ").split()


def chosen(wanted: str, known: list[str]) -> str | None:
    """Return the newest known release of a version such as 4.1, 4.1.3 or >=4.1,<5."""
    if wanted[0] not in "=<>":
        wanted = f"=={wanted}" if wanted.count(".") > 1 else f"=={wanted}.*"
    return next(SpecifierSet(wanted).filter(known), None)


def installed() -> dict[str, Path]:
    """Return the releases that are installed in target/pyspark, and their directories."""
    paths = (ROOT / "target" / "pyspark").glob("*/pyspark-*.dist-info")
    return {path.name.removesuffix(".dist-info").partition("-")[2]: path.parent for path in paths}


def newest(wanted: str, known: list[str]) -> str:
    """Return the release to run for a version; without the index, one that is installed."""
    there = sorted(installed(), key=lambda one: [*map(int, one.split("."))], reverse=True)
    release = chosen(wanted, known or there)
    if release is None:
        sys.exit(f"the package index has no pyspark {wanted}, or does not answer")
    return release


def install(release: str) -> Path:
    """Install a release if it is not there, and return its directory."""
    there = installed().get(release)
    if there is not None:
        return there
    folder = ROOT / "target" / "pyspark" / ".".join(release.split(".")[:2])
    shutil.rmtree(folder, ignore_errors=True)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target"]
    subprocess.run([*pip, str(folder), f"pyspark=={release}", "py4j"], check=True)
    return folder


def run(release: str) -> int:
    """Run the Spark tests on a release; their exit status, 1 if Python finds another release."""
    folder = install(release)
    paths = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "SPARK_HOME": str(folder / "pyspark"),
    }
    program = [sys.executable, "-c", "import pyspark; print(pyspark.__version__)"]
    found = subprocess.run(
        program, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=False
    ).stdout.strip()
    if found != release:
        print(f"PySpark {release}: {folder} has {found or 'none'}: delete it", file=sys.stderr)
        return 1
    print(f"PySpark {release} of {folder}", flush=True)
    tests = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "--nightly",
        "tests/spark",
        *(f"--deselect=tests/spark/{name}" for name in ELSEWHERE),
    ]
    return subprocess.run(tests, cwd=ROOT, env=environment, check=False).returncode


def main(words: list[str]) -> int:
    """Install releases and run the tests on each; return the exit status."""
    named = [word for word in words if word != "--install-only"]
    known = releases()
    wanted = dict.fromkeys(newest(version, known) for version in named or VERSIONS)
    gate = importlib.metadata.version("pyspark")
    if not named and wanted.pop(gate, "") is None:
        print(f"PySpark {gate} is the gate's: `make spark` and `make spark-long` run its tests")
    # One after the other: releases of one line have the same directory.
    if "--install-only" in words:
        for release in wanted:
            install(release)
        return 0
    statuses = [run(release) for release in wanted]
    return next((status for status in statuses if status), 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
