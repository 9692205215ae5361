"""Run tests/spark on other releases of PySpark: `spark_versions.py [VERSION ...]`.

Each release is installed beside the environment, into target/pyspark/VERSION, and comes first on
the path. The exit status is that of the first run that failed.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VERSIONS = ("==4.1.*", ">=4.3,<5")
"""The oldest release line that is supported, and the newest; the gate has the one between."""


def install(wanted: str) -> Path:
    """Install a release and return its directory."""
    folder = ROOT / "target" / "pyspark" / wanted.strip("=<>").split(",")[0].rstrip(".*")
    if not (folder / "pyspark").exists():
        requirement = f"pyspark{wanted if wanted[0] in '=<>' else f'=={wanted}'}"
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
        "tests/spark",
        "--deselect",
        "tests/spark/test_real.py",
    ]
    return subprocess.run(tests, cwd=ROOT, env=environment, check=False).returncode


if __name__ == "__main__":
    statuses = [run(install(wanted)) for wanted in sys.argv[1:] or VERSIONS]
    sys.exit(next((status for status in statuses if status), 0))
