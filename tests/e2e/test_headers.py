"""Our servers answer requests with a field missing, empty or wrong as the real 5.5.0 does.

`tests/golden/headers.json` has the real servers' answers, recorded by
`tests/interop/record_headers.py`. No Java runs here.

If Apache answers, ours answers with the same code and the same fields. If Apache refuses with a
text, ours refuses with the same code, and its remark begins with that text. If Apache fails with an
exception, ours refuses and names the field, or answers anyway. `ON_PURPOSE` lists the exceptions,
each with its row in docs/differences.md.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.interop.header_cases import CASES, play
from tests.interop.ours import OurBroker

from pyrmq import NameServer, _core
from pyrmq.codes import ResponseCode

ROOT = Path(__file__).resolve().parents[2]
RECORDED = ROOT / "tests" / "golden" / "headers.json"
VERSION = "5.5.0"
REFUSALS = (int(ResponseCode.SYSTEM_ERROR), int(ResponseCode.INVALID_PARAMETER))

ON_PURPOSE = (
    # server, code, field, how, the row of docs/differences.md that says why
    ("namesrv", 103, "brokerName", ".*", "A registration without broker name, cluster or address"),
    ("namesrv", 103, "brokerAddr", ".*", "A registration without broker name, cluster or address"),
    ("namesrv", 103, "clusterName", ".*", "A registration without broker name, cluster or address"),
    ("namesrv", 217, "topic|", "missing|empty|no field", "217 without a topic"),
    ("namesrv", 318, "", "whole", "318 takes changes of keys that nobody reads"),
    ("broker", 11, "subscription", "wrong", "A subscription of blanks"),
    ("broker", 361, "subscription", "wrong", "A subscription of blanks"),
    ("broker", 200050, "exp", "wrong", "A subscription of blanks"),
    ("broker", 200054, "exp", "wrong", "A subscription of blanks"),
    ("broker", 11, "expressionType", "wrong", "An expression of an unknown type"),
    ("broker", 361, "expressionType", "wrong", "An expression of an unknown type"),
    ("broker", 314, "destGroup", ".*", "Request 314 copies offsets to any group name"),
    ("broker", 323, ".*", ".*", "Request 323 writes any message"),
    ("broker", 353, "group|topic", ".*", "Allowing one topic to a group (353)"),
    ("broker", 223, "topic|clientAddr", ".*", "Request 223 to a group without members"),
    *(
        ("broker", code, "clientId", "missing", "A request for a consumer (307, 309) without")
        for code in (307, 309)
    ),
    *(
        ("broker", code, ".*(Id|Nums|Time|Mode)", ".*", "A pop, peek, notification or polling info")
        for code in (200050, 200052, 200054, 200055)
    ),
    *(
        ("broker", code, "consumerGroup", ".*", "An acknowledgement or a new invisible time")
        for code in (200051, 200053)
    ),
)
FIELDS_BY_MOOD = {"MSG_REGION", "TRACE_ON", "transactionId"}
"""Their presence depends on settings and on how an answer is built, not on the request."""

LEAST = 100
"""Minimum number of requests of each server in the table: an empty one would agree with
anything."""

FAQ = "For more information, please visit"


@cache
def recorded() -> dict[str, Any]:
    """Return the table."""
    tree: dict[str, Any] = json.loads(RECORDED.read_text(encoding="utf-8"))
    return tree


def is_exception(answer: dict[str, Any]) -> bool:
    """Return whether the real server failed with an exception."""
    remark = answer["remark"] or ""
    words = ("Exception", "Cannot invoke", "no answer")
    return answer["code"] in (None, 1) and any(word in remark for word in words)


def beginning(remark: str | None) -> str:
    """Return a remark without links and positions in Apache's code."""
    text = (remark or "").replace("null", "").replace("not set any response code", "")
    return re.split(r"See https?:|https?:|, topic is ", text)[0].rstrip(" .:,")


def difference(theirs: dict[str, Any], ours: dict[str, Any]) -> str | None:
    """Return the differences of an answer that are not allowed."""
    real, own = theirs["answer"], ours["answer"]
    if is_exception(real):
        if own["code"] == 0:
            return None
        named = theirs["field"] in (own["remark"] or "")
        return None if own["code"] in REFUSALS and named else f"{real} {own}"
    if real["code"] != own["code"]:
        return f"code {real['code']} {real['remark']!r}, ours {own['code']} {own['remark']!r}"
    fields = [set(answer["fields"]) - FIELDS_BY_MOOD for answer in (real, own)]
    if real["code"] == 0 and fields[0] != fields[1]:
        return f"fields {fields[0]}, ours {fields[1]}"
    if real["code"] == 0 and real["body"] != own["body"]:
        return f"body {real['body']}, ours {own['body']}"
    seen = [row.get("look") for row in (theirs, ours)]
    if seen[0] != seen[1]:
        return f"afterwards {seen[0]}, ours {seen[1]}"
    words = beginning(real["remark"])
    own_words = (own["remark"] or "").replace("null", "")
    if real["code"] != 0 and not own_words.startswith(words):
        return f"words {words!r}, ours {own['remark']!r}"
    return None


def purposes(kind: str, row: dict[str, Any]) -> set[tuple[str, int, str, str, str]]:
    """Return the rows of `ON_PURPOSE` that allow a different answer of ours."""
    return {
        purpose
        for purpose in ON_PURPOSE
        if (kind, row["code"]) == purpose[:2]
        and re.fullmatch(purpose[2], row["field"])
        and re.fullmatch(purpose[3], row["how"])
    }


def compare(kind: str, ours: list[dict[str, Any]]) -> list[str]:
    """Return rows with forbidden differences, and rows of `ON_PURPOSE` without any difference."""
    theirs = recorded()[VERSION][kind]
    same = [(row["case"], row["field"], row["how"]) for row in ours]
    assert same == [(row["case"], row["field"], row["how"]) for row in theirs], (
        "the requests have changed: python -m tests.interop.record_headers"
    )
    assert len(theirs) > LEAST
    wrong, used = [], set()
    for real, own in zip(theirs, ours, strict=True):
        found = difference(real, own)
        if found is not None and not purposes(kind, real):
            wrong.append(f"{real['code']} {real['field']} {real['how']}: {found}")
        if found is not None:
            used |= purposes(kind, real)
    unused = {purpose for purpose in ON_PURPOSE if purpose[0] == kind} - used
    return wrong + [f"nothing differs any more by {purpose}" for purpose in sorted(unused)]


def test_the_name_server_accepts_what_apaches_accepts(tmp_path: Path) -> None:
    with NameServer(listen_port=0, kv_config_path=str(tmp_path / "kv.json")) as server:
        assert compare("namesrv", play("namesrv", server.address)) == []


def test_the_broker_accepts_what_apaches_accepts(tmp_path: Path) -> None:
    with (
        NameServer(listen_port=0, kv_config_path=str(tmp_path / "kv.json")) as names,
        OurBroker(names.address) as broker,
    ):
        assert compare("broker", play("broker", broker.address)) == []


@pytest.mark.parametrize("row", ON_PURPOSE, ids=lambda row: f"{row[1]}-{row[2]}")
def test_every_refusal_on_purpose_has_its_row_in_the_differences(
    row: tuple[str, int, str, str, str],
) -> None:
    page = (ROOT / "docs" / "differences.md").read_text(encoding="utf-8")
    assert row[-1] in page


WITHOUT_A_CASE = {
    "no header field": {
        *(18, 21, 25, 26, 28, 34, 41, 42, 43, 45, 46, 60),
        *(200, 201, 225, 305, 319, 328, 329),
        *(400, 401, 402, 200056, 200151),
    },
    "the real broker answers nothing: it is sent oneway": {37},
    "refused unless a users' file is configured; tests/interop/test_auth.py asks": {
        *range(3001, 3011),
    },
    "refused unless aclEnable is set, and unknown to 5.5; tests/interop/test_plain_acl.py asks": {
        *range(50, 55),
    },
    "the client that asked must answer in between": {324, 325},
}


@pytest.mark.parametrize("kind", CASES)
def test_every_request_that_we_serve_is_in_the_table_or_says_why_not(kind: str) -> None:
    rows = _core.name_server_rows() if kind == "namesrv" else _core.broker_rows()
    served = {code for code, how, _ in rows if how != "refused"}
    asked = {row["code"] for row in recorded()[VERSION][kind]}
    excused = set().union(*WITHOUT_A_CASE.values())
    assert served - asked - excused == set()
    assert asked <= served


def test_no_excuse_is_left_for_a_code_that_is_asked_or_not_served() -> None:
    rows = [*_core.name_server_rows(), *_core.broker_rows()]
    served = {code for code, how, _ in rows if how != "refused"}
    asked = {row["code"] for kind in CASES for row in recorded()[VERSION][kind]}
    excused = set().union(*WITHOUT_A_CASE.values())
    assert excused <= served
    assert not excused & asked
