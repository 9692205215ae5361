"""Ships a pipeline's own modules, which are next to its file, to Spark's workers.

A function that a step registers with Spark is pickled by the name of its module, so the workers
import it, too.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["send_modules"]

_sent: WeakKeyDictionary[SparkSession, dict[Path, float]] = WeakKeyDictionary()
"""When each file of a session last changed."""


def send_modules(spark: SparkSession, folder: Path) -> None:
    """Give Spark every module of a folder that is imported here."""
    sent = _sent.setdefault(spark, {})
    for place in sorted(_imported(folder)):
        changed = max(_times(place))
        if sent.get(place) == changed:
            continue
        sent[place] = changed
        file = str(place)
        if place.is_dir():
            target = Path(tempfile.mkdtemp(prefix="pyrmq-steps-")) / place.name
            file = shutil.make_archive(str(target), "zip", folder, place.name)
        # Spark Connect has no context.
        add = getattr(spark, "addArtifacts", None)
        if hasattr(spark, "_jsparkSession") or add is None:
            spark.sparkContext.addPyFile(file)
        else:
            add(file, pyfile=True)


def _imported(folder: Path) -> set[Path]:
    """Return the files and packages of a folder that are imported."""
    found: set[Path] = set()
    for name, module in list(sys.modules.items()):
        if "." in name or name == "__main__":
            continue
        # A package without an __init__.py has no file.
        places = [Path(place) for place in getattr(module, "__path__", ())]
        file = getattr(module, "__file__", None)
        if file and file.endswith(".py") and not places:
            places = [Path(file)]
        found.update(place for place in places if place.parent == folder)
    return found


def _times(place: Path) -> list[float]:
    files = place.rglob("*.py") if place.is_dir() else [place]
    return [file.stat().st_mtime for file in files] or [0.0]
