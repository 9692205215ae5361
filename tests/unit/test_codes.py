"""The enums of pyrmq.codes and docs/compat.md match codes.rs and Apache's jars."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tools.gen_codes import render

from pyrmq import _core
from pyrmq.codes import RequestCode, ResponseCode

ROOT = Path(__file__).resolve().parents[2]
TABLE = (ROOT / "crates" / "remoting" / "src" / "codes.rs").read_text(encoding="utf-8")
PAGE = (ROOT / "docs" / "compat.md").read_text(encoding="utf-8")
APACHE = json.loads((ROOT / "tests" / "golden" / "codes.json").read_text(encoding="utf-8"))

NUMBERED_ANEW = {
    "UPDATE_AND_CREATE_ACL_CONFIG_FAILED",
    "DELETE_ACL_CONFIG_FAILED",
    "UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED",
}
"""Response codes of 4.x whose numbers mean something else in 5.x."""

MISSPELT = {"GET_ROUTEINTO_BY_TOPIC"}
"""The name that 4.6 has for 105."""


def rust_table(kind: str) -> int:
    """Count the rows of one table in the Rust source, without the generator's pattern."""
    body = TABLE.partition(f"pub mod {kind} {{")[2].partition("});")[0]
    return sum(" = " in line and line.endswith(",") for line in body.splitlines())


def page_rows() -> list[list[str]]:
    """Return the rows of the table in docs/compat.md, cell by cell."""
    lines = (line for line in PAGE.splitlines() if re.match(r"\| -?\d", line))
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_the_enums_are_generated_from_the_rust_table() -> None:
    written = (ROOT / "python" / "pyrmq" / "codes.py").read_text(encoding="utf-8")
    assert render(TABLE) == written, "run python tools/gen_codes.py"


def test_the_rust_table_the_enums_and_the_page_have_the_same_length() -> None:
    compiled = {code for code, _, _ in _core.broker_rows()}
    assert len(RequestCode) == len(compiled) == rust_table("request") == len(page_rows())
    assert {int(code) for code in RequestCode} == compiled
    assert len(ResponseCode) == rust_table("response")


@pytest.mark.parametrize("version", APACHE)
def test_every_code_of_apache_is_in_the_enums(version: str) -> None:
    known = APACHE[version]
    requests = {name: code for name, code in known["request"].items() if name not in MISSPELT}
    responses = {name: c for name, c in known["response"].items() if name not in NUMBERED_ANEW}
    ours = RequestCode.__members__
    assert {name: code for name, code in requests.items() if ours.get(name) != code} == {}
    answers = ResponseCode.__members__
    assert {name: code for name, code in responses.items() if answers.get(name) != code} == {}


def test_every_request_that_is_not_served_says_why() -> None:
    vague = "this broker does not serve this request"
    rows = (*_core.broker_rows(), *_core.name_server_rows())
    assert [code for code, kind, why in rows if kind == "refused" and why in ("", vague)] == []


def test_the_page_gives_no_refusal_beside_a_server_that_serves() -> None:
    rows = (*_core.broker_rows(), *_core.name_server_rows())
    refusals = {why for _, kind, why in rows if kind == "refused"}
    wrong = [
        (name, note)
        for _, name, _, names, broker, note, _ in page_rows()
        if {names, broker} & {"native", "python"} and refusals & set(note.split("; "))
    ]
    assert wrong == []


def test_codes_have_apaches_names_and_numbers() -> None:
    assert RequestCode(310).name == "SEND_MESSAGE_V2"
    assert ResponseCode(17).name == "TOPIC_NOT_EXIST"
