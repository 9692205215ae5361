"""What a test does on a machine that lacks something it needs."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def in_ci() -> bool:
    """Return whether this is a run of CI, on a machine that has all that tests need."""
    return os.environ.get("CI", "").lower() == "true"


def skip_outside_ci(reason: str) -> NoReturn:
    """Skip the running test; with ``CI=true`` fail it, since CI has what it needs."""
    if in_ci():
        pytest.fail(f"nothing may be skipped with CI=true: {reason}", pytrace=False)
    pytest.skip(reason)
