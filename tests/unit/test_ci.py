"""What tests do on a machine that lacks something they need."""

from __future__ import annotations

import pytest

from tests.e2e.ci import skip_outside_ci


@pytest.mark.parametrize(
    ("ci", "outcome"),
    [("true", pytest.fail.Exception), ("false", pytest.skip.Exception)],
)
def test_what_is_missing_is_skipped_outside_ci_and_fails_in_it(
    ci: str, outcome: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", ci)
    with pytest.raises(outcome, match="there is no tool here"):
        skip_outside_ci("there is no tool here")
