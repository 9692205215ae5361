"""Pipelines in one file: a topic or store directory, steps in SQL or Python, checks, and a sink.

``pyrmq pipeline`` runs them; :func:`load`, :func:`run` and :func:`status` do it from Python.
Importing this package needs no pyspark; running a pipeline does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyrmq.pipeline.checking import check
    from pyrmq.pipeline.checkpoint import status
    from pyrmq.pipeline.errors import PipelineError
    from pyrmq.pipeline.file import Pipeline, load
    from pyrmq.pipeline.report import Report
    from pyrmq.pipeline.running import run

_HOMES = {
    "Pipeline": "file",
    "PipelineError": "errors",
    "Report": "report",
    "check": "checking",
    "load": "file",
    "run": "running",
    "status": "checkpoint",
}
__all__ = ["Pipeline", "PipelineError", "Report", "check", "load", "run", "status"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"pyrmq.pipeline.{_HOMES[name]}"), name)
