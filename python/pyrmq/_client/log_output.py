"""Log output of a command: standard error or a rotating file, as text or JSON.

Separate from `log`, which every client imports: importing `logging.handlers` takes longer than a
client's start.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from dataclasses import dataclass
from logging.handlers import RotatingFileHandler
from pathlib import Path

from pyrmq.errors import ConfigError

__all__ = ["Output"]

_TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


@dataclass(frozen=True, slots=True)
class Output:
    """The destination of the log.

    Attributes:
        file: The file; None: standard error.
        max_bytes: Size at which the file is renamed to `FILE.1` and a new one begins. It also
            rotates at the first record of a day.
        keep: How many renamed files to keep; the oldest is deleted.
        as_json: One JSON object a line: `time` (ISO 8601, UTC), `level`, `logger`, `message`, and
            `error` with the traceback if there is one.
    """

    file: str | None = None
    max_bytes: int = 100 << 20
    keep: int = 10
    as_json: bool = False

    def install(self, level: str) -> None:
        """Send all records of this level and above to it.

        Raises:
            ConfigError: The file cannot be written.
        """
        handler: logging.Handler
        if self.file is None:
            handler = logging.StreamHandler(sys.stderr)
        else:
            try:
                handler = _DailyFile(self.file, self.max_bytes, self.keep)
            except OSError as error:
                raise ConfigError(
                    f"cannot write the log file {self.file}: {error.strerror or error}"
                ) from error
        handler.setFormatter(_Json() if self.as_json else logging.Formatter(_TEXT))
        logging.basicConfig(level=level, handlers=[handler], force=True)


class _DailyFile(RotatingFileHandler):
    """A file that rotates by size, and at the first record of a day.

    A file that was moved or deleted, as by logrotate, is opened again under its name.
    """

    def __init__(self, path: str, max_bytes: int, keep: int) -> None:
        super().__init__(path, maxBytes=max_bytes, backupCount=keep, encoding="utf-8")
        found = Path(path).stat()
        self._day = _day(found.st_mtime if found.st_size else time.time())

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record to the file that currently has the name."""
        if self.stream is not None and self._was_moved(self.stream.fileno()):
            self.stream.close()
            self.stream = self._open()
        super().emit(record)

    def _was_moved(self, descriptor: int) -> bool:
        try:
            named = os.stat(self.baseFilename)  # noqa: PTH116 - for each record
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return not os.path.samestat(named, os.fstat(descriptor))

    def shouldRollover(self, record: logging.LogRecord) -> bool:
        """Return whether this record begins a new file."""
        today = _day(record.created)
        if today != self._day:
            self._day = today
            return Path(self.baseFilename).stat().st_size > 0
        return bool(super().shouldRollover(record))


def _day(seconds: float) -> tuple[int, int]:
    local = time.localtime(seconds)
    return local.tm_year, local.tm_yday


class _Json(logging.Formatter):
    """Formats each record as one JSON object."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record's line."""
        whole, fraction = divmod(record.created, 1)
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole))
        line = {
            "time": f"{stamp}.{int(fraction * 1000):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)
