"""pyrmq.routing.Filter: the Python layer only; Rust tests the grammar."""

from __future__ import annotations

import contextlib
import copy
import pickle
import threading
from collections import ChainMap
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrmq import ConfigError
from pyrmq.errors import FilterError
from pyrmq.routing import Filter


def test_a_message_passes_when_the_condition_is_true() -> None:
    condition = Filter("price > 10 AND region <> 'eu'")
    assert condition.expression == "price > 10 AND region <> 'eu'"
    assert condition.names == ("price", "region")
    assert condition.matches({"price": "11", "region": "us", "more": "1"}) is True
    assert condition.matches({"price": "11"}) is False
    assert condition.evaluate({"price": "11"}) is None
    assert condition.evaluate({"price": "1"}) is False


def test_an_error_says_where_and_can_be_copied() -> None:
    with pytest.raises(FilterError, match="character 8: found `b`") as caught:
        Filter("'\U0001f600' = a b")
    error = caught.value
    assert isinstance(error, ConfigError)
    assert isinstance(error, ValueError)
    for again in (copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert (str(again), again.position) == (str(error), 8)


def test_a_value_that_cannot_be_compared_does_not_match() -> None:
    condition = Filter("'\u00e9' = b OR a > 1")
    assert condition.matches({"a": "x"}) is False
    with pytest.raises(FilterError, match=r"comparison at character 11 .* no integer") as caught:
        condition.evaluate({"a": "x"})
    assert caught.value.position == 11


@pytest.mark.parametrize("value", [1, b"1", 1.5, True, ["1"]])
def test_a_property_that_is_not_text_is_named(value: object) -> None:
    condition = Filter("b = 1 OR a = 1")
    for call in (condition.matches, condition.evaluate):
        with pytest.raises(TypeError, match=r"`a` is \w+, not text: pass str\(value\)"):
            call({"a": value})  # type: ignore[dict-item]
    assert condition.matches({"b": "1"})


def test_any_mapping_will_do() -> None:
    condition = Filter("a = b")
    assert condition.matches(MappingProxyType({"a": "1", "b": "1"}))
    assert condition.matches(ChainMap({"a": "1"}, {"b": "1"}))


def test_an_expression_must_be_text() -> None:
    with pytest.raises(TypeError):
        Filter(b"a = 1")  # type: ignore[arg-type]


def test_a_lone_surrogate_matches_nothing() -> None:
    condition = Filter("a = '\ud800' OR a IS NULL")
    assert condition.matches({"a": "x"}) is False
    with pytest.raises(UnicodeEncodeError):
        condition.matches({"a": "\ud800"})
    with pytest.raises(FilterError, match="character 4"):
        Filter("a = \ud800")


def test_a_filter_can_be_copied_and_sent_to_other_processes() -> None:
    condition = Filter("a = '1'")
    for again in (copy.deepcopy(condition), pickle.loads(pickle.dumps(condition))):
        assert repr(again) == repr(condition) == "Filter(\"a = '1'\")"
        assert again.matches({"a": "1"})


def test_threads_share_a_filter() -> None:
    condition, seen = Filter("a BETWEEN 10 AND 19"), []

    def look() -> None:
        seen.append(sum(condition.matches({"a": str(number)}) for number in range(1000)))

    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [10] * 4


@given(st.text(max_size=40), st.dictionaries(st.sampled_from("abc"), st.text(max_size=5)))
def test_no_text_does_more_than_raise(expression: str, properties: dict[str, str]) -> None:
    for text in (expression, f"a = '{expression}'", f"a > {expression}"):
        with contextlib.suppress(FilterError, UnicodeEncodeError):
            assert Filter(text).matches(properties) in {True, False}
