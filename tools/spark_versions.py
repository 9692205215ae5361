"""Run tests/spark on other releases of PySpark: `spark_versions.py [--install-only] [VERSION ...]`.

Each release is installed apart from the environment, into target/pyspark/VERSION, and comes first
on the path. 4.1 stands for the newest 4.1.x. The exit status is that of the first run that failed.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VERSIONS = ("==4.1.*", ">=4.3,<5")
"""The oldest release line that is supported, and the newest; the gate has the one between."""

ELSEWHERE = (
    "test_elsewhere.py",
    "test_memory.py",
    "test_real.py",
    "test_same_rows.py",
    "test_torture.py",
    "test_query.py::test_a_query_gives_what_it_gives_with_all_columns[queries1]",
)
"""Tests that other parts of the nightly run have, with the gate's release."""


def install(wanted: str) -> Path:
    """Install a release and return its directory."""
    folder = ROOT / "target" / "pyspark" / wanted.strip("=<>").split(",")[0].rstrip(".*")
    if not (folder / "pyspark").exists():
        if wanted[0] not in "=<>":
            wanted = f"=={wanted}" if wanted.count(".") > 1 else f"=={wanted}.*"
        requirement = f"pyspark{wanted}"
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target"]
        subprocess.run([*pip, str(folder), requirement, "py4j"], check=True)
    return folder


def run(folder: Path) -> int:
    """Run the Spark tests on a release; their exit status."""
    paths = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "SPARK_HOME": str(folder / "pyspark"),
    }
    print(f"PySpark of {folder}", flush=True)
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


if __name__ == "__main__":
    words = sys.argv[1:]
    only = "--install-only" in words
    folders = [install(word) for word in words if word != "--install-only"] or [
        install(wanted) for wanted in VERSIONS
    ]
    statuses = [] if only else [run(folder) for folder in folders]
    sys.exit(next((status for status in statuses if status), 0))
