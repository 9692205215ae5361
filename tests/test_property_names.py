"""Holds the names of properties to one place of the Rust code, `properties::names`."""

from __future__ import annotations

import re
from pathlib import Path

from tests.rust_source import product_code

ROOT = Path(__file__).resolve().parent.parent

# A message type of topics, which has the name of a property.
MESSAGE_TYPES = ["crates/broker/src/tables/attributes.rs: DELAY"]


def _property_literals(text: str, names: set[str]) -> list[str]:
    r"""String literals that are a property's name, or text in wire form (`NAME\u{1}value`)."""
    code = re.sub(r"^\s*//.*", "", text, flags=re.MULTILINE)
    found = []
    for literal in re.findall(r'"((?:[^"\\\n]|\\.)*)"', code):
        marked = re.sub(r"\\x01|\\u\{0*1\}", "\x01", literal)
        plain = re.sub(r"\\x\w\w|\\u\{\w+\}", " ", marked)
        if literal in names or names & set(re.findall(r"(\w+)\x01", plain)):
            found.append(literal)
    return found


def test_property_names_stand_once_in_rust() -> None:
    home = ROOT / "crates" / "remoting" / "src" / "message" / "properties.rs"
    names = set(re.findall(r'^ +\w+ = "(.+)",$', home.read_text(encoding="utf-8"), re.MULTILINE))
    assert {"UNIQ_KEY", "__CRC32#"} <= names
    found = [
        f"{path.relative_to(ROOT)}: {literal}"
        for path in sorted((ROOT / "crates").glob("*/src/**/*.rs"))
        if path != home
        for literal in _property_literals(product_code(path), names)
    ]
    assert found == MESSAGE_TYPES, f"use properties::names: {found}"


def test_the_scan_sees_property_names() -> None:
    text = r'get("TAGS"); push("UNIQ_KEY\u{1}"); b"x\x02WAIT\x01true"; say("the TAGS of \u{1}")'
    assert _property_literals(text, {"TAGS", "UNIQ_KEY", "WAIT"}) == [
        "TAGS",
        r"UNIQ_KEY\u{1}",
        r"x\x02WAIT\x01true",
    ]
