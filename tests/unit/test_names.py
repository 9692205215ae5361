"""RocketMQ's names stand once in Python, with the values that they have in Rust."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING

from pyrmq import _core, _names

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
CRATES = ROOT / "crates"


def rust_names() -> dict[str, str | int]:
    """Return the constants of `names.rs`."""
    text = (CRATES / "remoting/src/names.rs").read_text(encoding="utf-8")
    found = re.findall(r'(?m)^pub const (\w+): (?:&str|i32) = (?:"(.*)"|(\d+));$', text)
    return {name: text or int(number) for name, text, number in found}


def rust_properties() -> dict[str, str]:
    """Return the constants of `names` in `properties.rs`."""
    text = (CRATES / "remoting/src/message/properties.rs").read_text(encoding="utf-8")
    return dict(re.findall(r'(?m)^        (\w+) = "(.*)",$', text))


def own_names() -> dict[str, str | int]:
    """Return the constants of `_names` that are a text or a number."""
    return {
        name: value
        for name, value in vars(_names).items()
        if name.isupper() and isinstance(value, str | int)
    }


def own_properties() -> dict[str, str]:
    """Return the constants of `_names.Property`."""
    return {name: value for name, value in vars(_names.Property).items() if name[:1].isupper()}


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the text constants of a Python file, with their lines."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def spelt_out(package: Path) -> list[str]:
    """Return where a module of a package has the text of a name, `_names` apart."""
    names = {text for text in rust_names().values() if isinstance(text, str)}
    names |= {*rust_properties().values(), _names.TOOLS_GROUP}
    return [
        f"{path.relative_to(package)}:{line}: {text}"
        for path in sorted(package.rglob("*.py"))
        if path.name != "_names.py"
        for line, text in texts(path)
        if text in names or text == "_REPLY_TOPIC"
    ]


def test_topics_prefixes_and_permissions_have_the_values_of_rust() -> None:
    rust, own = rust_names(), own_names()
    files = ("remoting/src/names.rs", "auth/src/plain/needs.rs", "broker/src/admission.rs")
    text = "".join((CRATES / name).read_text(encoding="utf-8") for name in files)
    assert f'"{own.pop("TOOLS_GROUP")}"' in text
    assert f'"{_names.reply_topic("")}"' in text
    commands = (CRATES / "remoting/src/command.rs").read_text(encoding="utf-8")
    assert f"V5_0_0: i32 = {own.pop('V5_0_0')};" in commands
    # Only Python compares a version with this one.
    del own["V4_7_1"]
    assert own == {name: rust.get(name) for name in own}


def test_properties_have_the_names_of_rust() -> None:
    rust, own = rust_properties(), own_properties()
    assert sorted(rust.values()) == sorted(_core.RESERVED_PROPERTIES)
    assert own == {name: rust.get(name) for name in own}


def test_no_other_module_spells_a_name_out() -> None:
    found = spelt_out(ROOT / "python" / "pyrmq")
    assert not found, f"take them from pyrmq._names: {found}"


def test_the_scan_sees_a_name_that_is_spelt_out(tmp_path: Path) -> None:
    (tmp_path / "wrong.py").write_text('topic = f"%DLQ%{group}"\nkeys = {"KEYS": "OTHER"}\n')
    (tmp_path / "_names.py").write_text('KEYS = "KEYS"\n')
    assert spelt_out(tmp_path) == ["wrong.py:1: %DLQ%", "wrong.py:2: KEYS"]


def test_each_name_is_used() -> None:
    """A name that no module needs would only be a second copy of Rust's."""
    base = ROOT / "python" / "pyrmq"
    used = "".join(path.read_text(encoding="utf-8") for path in base.rglob("*.py"))
    names = [*own_names(), *(f"Property.{name}" for name in own_properties())]
    own = (base / "_names.py").read_text(encoding="utf-8")
    idle = [name for name in names if used.count(name) <= own.count(name)]
    assert not idle, f"no module uses them: {idle}"
