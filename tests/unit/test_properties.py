"""Property files: Java's grammar, both encodings, and a lossless round trip."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrmq.errors import ConfigError
from pyrmq.server.options import properties

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("a=b", {"a": "b"}),
        ("a = b", {"a": "b"}),
        ("a:b", {"a": "b"}),
        ("a b c", {"a": "b c"}),
        ("a", {"a": ""}),
        ("  a=b  ", {"a": "b  "}),
        ("# no\n! no\n\n  # no\na=b", {"a": "b"}),
        ("a=b\\\n   c", {"a": "bc"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("a=b\\\r\n c\rd=e", {"a": "bc", "d": "e"}),
        ("a\\ b\\=\\:=c", {"a b=:": "c"}),
        ("a=\\t\\n\\q", {"a": "\t\nq"}),
        ("a=\\u00e9\\uD83D\\uDE00", {"a": "é\U0001f600"}),
        ("a=1\na=2", {"a": "2"}),
        ("a==b", {"a": "=b"}),
        ("a=b\\", {"a": "b"}),
        ("a=\\\n# no comment here", {"a": "# no comment here"}),
        ("storePathRootDir=C:\\\\store", {"storePathRootDir": "C:\\store"}),
    ],
)
def test_text_is_read_as_java_reads_it(text: str, pairs: dict[str, str]) -> None:
    assert properties.parse(text) == pairs


@pytest.mark.parametrize("text", ["a=\\u12", "a=\\u12g4", "\\u=1"])
def test_a_broken_unicode_escape_is_an_error(text: str) -> None:
    with pytest.raises(ConfigError, match="four hexadecimal digits"):
        properties.parse(text)


@given(
    st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"])),
        st.text(st.characters(exclude_categories=["Cs"])),
    )
)
def test_what_is_written_is_read_back(pairs: dict[str, str]) -> None:
    text = properties.write(pairs)
    assert text.isascii()
    assert properties.parse(text) == pairs


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    if "\\u" in text:
        with contextlib.suppress(ConfigError):
            properties.parse(text)
    else:
        assert all(isinstance(key, str) for key in properties.parse(text))


def test_utf8_and_latin1_files_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "utf8").write_bytes("brokerName=bröker\n".encode())
    (tmp_path / "latin1").write_bytes("brokerName=bröker\n".encode("latin-1"))
    (tmp_path / "marked").write_bytes("\ufeffbrokerName=bröker\n".encode())
    for name in ("utf8", "latin1", "marked"):
        assert properties.read(tmp_path / name) == {"brokerName": "bröker"}


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"gone\.conf.*No such file"):
        properties.read(tmp_path / "gone.conf")
