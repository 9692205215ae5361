"""Errors of pipelines, with the line and key of the file, and the cause in one line."""

from __future__ import annotations

from pyrmq.errors import ConfigError

__all__ = ["PipelineError", "cause_of"]

_RAISED = "[USER_RAISED_EXCEPTION]"
_CALL = "An error occurred while calling"
_SHOWN = 500


class PipelineError(ConfigError):
    """A pipeline file cannot be used.

    Example:
        >>> str(PipelineError("p.toml", 7, "source.topik", "unknown, did you mean topic?"))
        'p.toml, line 7, key source.topik: unknown, did you mean topic?'
    """

    def __init__(self, file: str, line: int | None, key: str | None, problem: str) -> None:
        """Keep line and key in addition to the text."""
        where = [file]
        if line is not None:
            where.append(f"line {line}")
        if key is not None:
            where.append(f"key {key}")
        super().__init__(f"{', '.join(where)}: {problem}")
        self.line = line
        self.key = key


def cause_of(error: BaseException) -> str:
    """Return the line of the cause: ours, if there is one."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    raised = [line.partition(_RAISED)[2].strip() for line in lines if _RAISED in line]
    ours = [line for line in lines if line.startswith("pyrmq.")]
    if raised or ours:
        return (raised or ours)[-1][:_SHOWN]
    if lines and lines[0].startswith(_CALL):
        # Py4J puts the Java exception in the second line.
        lines = [line.removeprefix(": ") for line in lines[1:]] or lines
    return (lines or [type(error).__name__])[0][:_SHOWN]
