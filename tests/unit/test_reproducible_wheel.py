"""`tools/wheel.py` removes from a wheel what differs from build to build."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import zipfile
from typing import TYPE_CHECKING

from tools import wheel

if TYPE_CHECKING:
    import pytest

SBOM = "pyrmq-1.dist-info/sboms/pyrmq.cyclonedx.json"
RECORD = "pyrmq-1.dist-info/RECORD"


def built(root: str, time: str, number: str, date: tuple[int, ...]) -> bytes:
    """Return what two machines could have built from the same sources."""
    sbom = {
        "bomFormat": "CycloneDX",
        "serialNumber": f"urn:uuid:{number}",
        "metadata": {"timestamp": time},
        "components": [
            {"bom-ref": f"path+file://{root}/crates/auth#pyrmq-auth@0.1.0"},
            {"bom-ref": "registry+https://github.com/rust-lang/crates.io-index#ring@0.17.14"},
        ],
    }
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in (
            ("pyrmq/__init__.py", b"x = 1\n" * 100),
            (SBOM, json.dumps(sbom).encode()),
            (RECORD, b"old"),
        ):
            info = zipfile.ZipInfo(name, date)  # type: ignore[arg-type]
            info.external_attr = 0o100644 << 16
            archive.writestr(info, content)
    return out.getvalue()


def test_the_packed_archive_has_the_same_files_and_modes() -> None:
    old = built("/", "", "1" * 32, (2026, 1, 1, 0, 0, 0))
    with zipfile.ZipFile(io.BytesIO(wheel.rewritten(old))) as archive:
        assert archive.testzip() is None
        assert archive.read("pyrmq/__init__.py") == b"x = 1\n" * 100
        for info in archive.infolist():
            assert info.external_attr == 0o100644 << 16
            assert info.date_time == (1980, 1, 1, 0, 0, 0)
            assert info.compress_size < info.file_size


def test_two_builds_of_the_same_sources_become_equal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    one = built("/home/a/pyrmq", "2026-01-01T00:00:00Z", "1" * 32, (2026, 1, 1, 0, 0, 0))
    other = built("/build/pyrmq", "2026-02-02T00:00:00Z", "2" * 32, (2026, 2, 2, 0, 0, 0))
    made = wheel.rewritten(one)
    assert made == wheel.rewritten(other)
    assert made == wheel.rewritten(made)
    with zipfile.ZipFile(io.BytesIO(made)) as archive:
        assert archive.namelist()[-1] == RECORD
        listed = json.loads(archive.read(SBOM))
        assert listed["metadata"]["timestamp"] == "2023-11-14T22:13:20Z"
        assert [part["bom-ref"] for part in listed["components"]] == [
            "path+file:///crates/auth#pyrmq-auth@0.1.0",
            "registry+https://github.com/rust-lang/crates.io-index#ring@0.17.14",
        ]
        lines = archive.read(RECORD).decode().splitlines()
        for line in lines[:-1]:
            name, digest, size = line.split(",")
            content = archive.read(name)
            expected = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=")
            assert (digest, size) == (f"sha256={expected.decode()}", str(len(content)))
        assert lines[-1] == f"{RECORD},,"
