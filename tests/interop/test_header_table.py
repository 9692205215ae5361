"""The recorded answers to damaged headers are still those of the real servers."""

from __future__ import annotations

import json

import pytest

from tests.interop import artifacts
from tests.interop.record_headers import TABLE, differing, record


@pytest.mark.interop_all
@pytest.mark.timeout(600)
def test_the_table_of_damaged_headers_is_what_the_real_servers_answer(version: str) -> None:
    artifacts.require_java()
    kept = json.loads(TABLE.read_text(encoding="utf-8"))
    newest = artifacts.VERSIONS[0]
    found = record(version)
    if version != newest:
        found = differing(kept[newest], found)
    for kind, rows in found.items():
        if kind == "config":
            assert rows == kept[version][kind]
            continue
        codes = [(row["case"], row["field"], row["how"], row["answer"]["code"]) for row in rows]
        assert codes == [
            (row["case"], row["field"], row["how"], row["answer"]["code"])
            for row in kept[version][kind]
        ]
