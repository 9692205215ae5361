"""The error of a pipeline file: which line, which key, what is wrong."""

from __future__ import annotations

from pyrmq.errors import ConfigError

__all__ = ["PipelineError"]


class PipelineError(ConfigError):
    """A pipeline file cannot be used.

    Example:
        >>> str(PipelineError("p.toml", 7, "source.topik", "unknown, did you mean topic?"))
        'p.toml, line 7, key source.topik: unknown, did you mean topic?'
    """

    def __init__(self, file: str, line: int | None, key: str | None, problem: str) -> None:
        """Keep line and key beside the text."""
        where = [file]
        if line is not None:
            where.append(f"line {line}")
        if key is not None:
            where.append(f"key {key}")
        super().__init__(f"{', '.join(where)}: {problem}")
        self.line = line
        self.key = key
