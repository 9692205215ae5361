"""Compares SQL92 filters with the real broker's classes on the same expressions and properties.

One difference is deliberate: Apache's parser ignores text after an expression, ours refuses it. The
refused text must be what Apache did not read.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

from pyrmq.errors import FilterError
from pyrmq.routing import Filter
from tests.interop.filters import Maker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.interop.driver import Driver
    from tests.interop.filters import Properties

    Case = tuple[str, list[Properties]]
    Drivers = Callable[[str, str], Driver]

VERSION = "5.5.0"
"""Older brokers lack CONTAINS."""
CONTEXTS = 6
AT_ONCE = 500


def theirs(driver: Driver, cases: Iterable[Case]) -> list[str]:
    """Return the real classes' results: `-`, or a letter for each set of properties."""
    lines = []
    for expression, contexts in cases:
        pairs = [
            ",".join(f"{quote(name, safe='')}={quote(text, safe='')}" for name, text in one.items())
            for one in contexts
        ]
        lines.append(";".join([quote(expression, safe=""), *pairs]))
    found: list[str] = driver.call("filter.evaluate", cases="\n".join(lines))
    return found


def letters(condition: Filter, contexts: list[Properties]) -> str:
    """Return the letters for one of our filters."""
    found = ""
    for properties in contexts:
        try:
            value = condition.evaluate(properties)
        except FilterError:
            assert not condition.matches(properties)
            found += "X"
        else:
            assert condition.matches(properties) == (value is True)
            found += "N" if value is None else str(value)[0]
    return found


def ours(expression: str, contexts: list[Properties]) -> tuple[str, bool]:
    """Return `pyrmq.routing`'s result, and whether the end of the expression was omitted."""
    try:
        return letters(Filter(expression), contexts), False
    except FilterError as failed:
        error = failed
    # If quotes do not pair up, Apache takes the text up to the last possible closing quote.
    if not str(error).endswith(("expected a comparison, AND, OR or the end", "twice: ''")):
        return "-", False
    try:
        return letters(Filter(expression[: error.position]), contexts), True
    except FilterError:
        return "-", False


def compare(driver: Driver, seed: int, count: int) -> dict[str, int]:
    """Compare this many expressions; return the count of each result."""
    maker = Maker(random.Random(seed))
    seen = {"refused": 0, "cut": 0, "T": 0, "F": 0, "N": 0, "X": 0}
    for begin in range(0, count, AT_ONCE):
        some = range(min(AT_ONCE, count - begin))
        cases = [(maker.expression(), [maker.properties() for _ in range(CONTEXTS)]) for _ in some]
        for (expression, contexts), real in zip(cases, theirs(driver, cases), strict=True):
            result, cut = ours(expression, contexts)
            # A broker may refuse the token after the end, which we need not read.
            assert result == real or (cut and real == "-"), (seed, expression, contexts)
            seen["refused"] += real == "-"
            seen["cut"] += cut
            for letter in result.replace("-", ""):
                seen[letter] += 1
    return seen


def test_the_real_broker_filters_alike(drivers: Drivers) -> None:
    seen = compare(drivers(VERSION, "JSON"), seed=92, count=2000)
    assert all(number >= 50 for number in seen.values()), seen


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_the_real_broker_filters_alike_a_hundred_thousand_times(
    drivers: Drivers,
) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    seen = compare(drivers(VERSION, "JSON"), seed=seed, count=100_000)
    assert all(number >= 2500 for number in seen.values()), seen


def test_the_same_characters_are_digits(drivers: Drivers) -> None:
    codes = [code for code in range(0x10000) if not 0xD800 <= code < 0xE000]
    contexts = [{"a": chr(code)} for code in codes if code]
    for expression in ("a >= 0", "a >= 0.5"):
        (real,) = theirs(drivers(VERSION, "JSON"), [(expression, contexts)])
        assert letters(Filter(expression), contexts) == real


def test_the_same_characters_begin_names(drivers: Drivers) -> None:
    codes = [*range(1, 0x800), 0x0130, 0x0131, 0x017F, 0x212A, 0x3000, 0xFEFF, 0xFFFF, 0x1F600]
    cases: list[Case] = [
        (form.format(chr(code)), [{}])
        for code in codes
        for form in ("{} = 1", "a{} = 1", "a = '{}'", "a =/*{}*/1", "a =--{}\n1")
    ]
    real = [
        result
        for at in range(0, len(cases), 5000)
        for result in theirs(drivers(VERSION, "JSON"), cases[at : at + 5000])
    ]
    for (expression, contexts), result in zip(cases, real, strict=True):
        found, cut = ours(expression, contexts)
        assert found == result or (cut and result == "-"), expression
