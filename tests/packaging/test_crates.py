"""The crates that are compiled into the wheel: their licences and sources, as `deny.toml` has them.

`cargo deny check licenses sources bans` holds the same and more. It is a program of its own, which
the gate does not need.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.ci import in_ci, skip_outside_ci

ROOT = Path(__file__).resolve().parents[2]
CRATES_IO = "registry+https://github.com/rust-lang/crates.io-index"


def is_allowed(expression: str, allowed: set[str]) -> bool:
    """Whether an SPDX expression can be met by some of the allowed licences."""
    # The slash is how older crates write OR.
    expression = expression.replace("/", " OR ")
    words = re.findall(r"\(|\)|[^\s()]+(?: WITH \S+)?", expression)
    terms = {"(": "(", ")": ")", "AND": "and", "OR": "or"}
    # Brackets, and, or, True and False alone.
    python = " ".join(terms.get(word, str(word in allowed)) for word in words)
    return bool(eval(python))


def rules() -> dict[str, Any]:
    return tomllib.loads((ROOT / "deny.toml").read_text())


@pytest.fixture(scope="module")
def crates() -> list[dict[str, Any]]:
    """All crates of the lock file but our own."""
    if shutil.which("cargo") is None:
        skip_outside_ci("needs cargo")
    # It also reads the crates of other systems, which no build here fetches. CI may fetch them.
    offline = () if in_ci() else ("--offline",)
    command = ["cargo", "metadata", "--locked", *offline, "--format-version", "1"]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    if done.returncode != 0 and "offline" in done.stderr:
        why = done.stderr.splitlines()[0]
        skip_outside_ci(f"not all crates are here; `cargo fetch --locked` gets them: {why}")
    assert done.returncode == 0, done.stderr
    packages: list[dict[str, Any]] = json.loads(done.stdout)["packages"]
    return [package for package in packages if package["source"] is not None]


def test_each_crate_has_a_licence_that_is_allowed(crates: list[dict[str, Any]]) -> None:
    allowed = set(rules()["licenses"]["allow"])
    assert len(crates) > 100
    refused = {
        f"{crate['name']} {crate['version']}": crate["license"]
        for crate in crates
        if not is_allowed(crate["license"] or "none", allowed)
    }
    assert refused == {}


def test_each_crate_comes_from_the_registry(crates: list[dict[str, Any]]) -> None:
    assert rules()["sources"] == {"unknown-registry": "deny", "unknown-git": "deny"}
    assert {crate["source"] for crate in crates} == {CRATES_IO}
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text())
    unchecked = [
        package["name"]
        for package in lock["package"]
        if "source" in package and not package.get("checksum")
    ]
    assert unchecked == []


def test_no_dependency_takes_any_version() -> None:
    for manifest in (ROOT / "Cargo.toml", *ROOT.glob("crates/*/Cargo.toml")):
        text = tomllib.loads(manifest.read_text())
        tables = [text.get("workspace", {}), text]
        for table in tables:
            for kind in ("dependencies", "dev-dependencies", "build-dependencies"):
                for name, given in table.get(kind, {}).items():
                    of = given if isinstance(given, dict) else {"version": given}
                    fixed = of.get("version") or of.get("path") or of.get("workspace")
                    assert fixed, (manifest, name)
                    assert "*" not in str(of.get("version", "")), (manifest, name)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("MIT", True),
        ("GPL-3.0", False),
        ("MIT/GPL-3.0", True),
        ("MIT AND GPL-3.0", False),
        ("(MIT OR GPL-3.0) AND ISC", True),
        ("Apache-2.0 WITH LLVM-exception", False),
        ("none", False),
    ],
)
def test_expressions_are_read_as_spdx_means_them(expression: str, *, expected: bool) -> None:
    assert is_allowed(expression, {"MIT", "ISC", "Apache-2.0"}) == expected
