"""Says why the source cannot be used; Spark would only say DATA_SOURCE_NOT_FOUND.

Spark drops a source whose module raises, so a source that raises on first use replaces it. If the
workers run a Python without this package there is no such module, and `register` detects that.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

from pyspark.sql.datasource import DataSource

__all__ = ["check_worker", "unavailable"]

_WANTED = "import pyarrow, pandas, pyrmq._core"
_IMPORT_S = 60


def check_worker(python: str) -> None:
    """Refuse a Python for Spark's workers that cannot use this package.

    Args:
        python: the program, as Spark finds it; nothing is started if it is the driver's.

    Raises:
        ConfigError: it cannot import what workers need.

    Example:
        >>> check_worker(sys.executable)
    """
    found = shutil.which(python)
    if found is None or _identity(found) == _identity(sys.executable):
        return
    done = subprocess.run(  # noqa: S603 - Spark starts it, too
        [found, "-c", _WANTED], capture_output=True, text=True, timeout=_IMPORT_S, check=False
    )
    if done.returncode != 0:
        # Imported here: this module must work without the native one.
        from pyrmq.errors import ConfigError

        cause = (done.stderr.strip().splitlines() or ["it ended without output"])[-1]
        raise ConfigError(
            f"Spark's workers run {found}, which cannot use this package: {cause}. The driver runs"
            f" {sys.executable}: set PYSPARK_PYTHON to it before the session starts, or install"
            f" pyrmq-rocketmq[spark] for {found}"
        )


def _identity(python: str) -> tuple[Path, Path]:
    """Return what distinguishes one Python from another: two environments may share one program."""
    return Path(python).absolute().parent, Path(python).resolve()


def unavailable(cause: BaseException) -> type[DataSource]:
    """Make a source that raises the cause as soon as it is used."""
    text = (
        f"format rocketmq cannot be used by {sys.executable} (Python {sys.version.split()[0]}):"
        f" {type(cause).__name__}: {cause}. Install pyrmq-rocketmq[spark] there; if this is not"
        " the driver's Python, set PYSPARK_PYTHON to that of the driver before the session starts"
    )

    class UnavailableDataSource(DataSource):
        """Raises on use."""

        @classmethod
        def name(cls) -> str:
            """Return the format's name."""
            return "rocketmq"

        def schema(self) -> NoReturn:
            """Raise the cause."""
            raise ImportError(text)

        def __getattribute__(self, name: str) -> object:
            """Raise the cause for every read and write."""
            if name in {"reader", "streamReader", "writer", "streamWriter"}:
                raise ImportError(text)
            return super().__getattribute__(name)

    return UnavailableDataSource
