"""Builds the wheel so that the same sources give the same bytes: `python tools/wheel.py`.

maturin puts a list of the crates into the wheel (CycloneDX, `.dist-info/sboms/`). That list has the
time, a random number and this machine's paths. This program replaces them, and packs everything
again with libdeflate, whose strongest compression takes seconds and is 6 % smaller than zlib's; all
installers read it. With `--remap` the compiler writes no path of this machine into the native
module either; that compiles every crate anew, so it is for releases.
"""

from __future__ import annotations

import argparse
import base64
import csv
import hashlib
import io
import json
import os
import re
import struct
import subprocess
import sys
import tempfile
import uuid
import zipfile
import zlib
from datetime import UTC, datetime
from pathlib import Path

from deflate import deflate_compress

ROOT = Path(__file__).resolve().parent.parent
EPOCH = (0, 0x21)
"""Time and date of each file in the archive: 1980-01-01, the earliest that the format has."""
NAMESPACE = uuid.UUID("2d1c5b4e-4a55-5c0e-9d3f-6f2b8a3f7c11")


def main() -> int:
    """Build, rewrite, and print the path."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    parser.add_argument("--remap", action="store_true", help="no paths in the native module")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as made:
        build(Path(made), remap=given.remap)
        (wheel,) = Path(made).glob("*.whl")
        (given.out / wheel.name).write_bytes(rewritten(wheel.read_bytes()))
    print(given.out / wheel.name)
    return 0


def build(out: Path, *, remap: bool) -> None:
    """Let maturin build the wheel, with dates of the last commit."""
    environment = dict(os.environ)
    environment.setdefault("SOURCE_DATE_EPOCH", _last_commit())
    if remap:
        cargo = Path(environment.get("CARGO_HOME", Path.home() / ".cargo"))
        flags = [f"--remap-path-prefix={cargo}=/cargo", f"--remap-path-prefix={ROOT}=/pyrmq"]
        environment["CARGO_ENCODED_RUSTFLAGS"] = "\x1f".join(flags)
    maturin = Path(sys.executable).with_name("maturin")
    command = [str(maturin), "build", "--release", "--locked", "--quiet", "--out", str(out)]
    subprocess.run(command, cwd=ROOT, env=environment, check=True)


def rewritten(wheel: bytes) -> bytes:
    """Return a wheel with the same content, but for what differs from build to build."""
    with zipfile.ZipFile(io.BytesIO(wheel)) as archive:
        names = sorted(archive.namelist())
        files = {name: archive.read(name) for name in names}
        modes = {name: archive.getinfo(name).external_attr for name in names}
    (record,) = (name for name in names if name.endswith(".dist-info/RECORD"))
    for name in names:
        if "/sboms/" in name:
            files[name] = normal(files[name])
    files[record] = _record(files, record)
    # The record comes last, as the format of wheels recommends.
    ordered = [*(name for name in names if name != record), record]
    return _archive([(name, modes[name], files[name]) for name in ordered])


def _archive(files: list[tuple[str, int, bytes]]) -> bytes:
    """Return a zip archive of these names, modes and contents.

    `zipfile` compresses with zlib only, so the headers are written here (APPNOTE.TXT 4.3).
    """
    out, directory = bytearray(), bytearray()
    for name, mode, content in files:
        encoded, packed = name.encode("ascii"), deflate_compress(content, 12)
        # Version 2.0, no flags.
        sizes = (zlib.crc32(content), len(packed), len(content), len(encoded), 0)
        common = struct.pack("<5H3L2H", 20, 0, zipfile.ZIP_DEFLATED, *EPOCH, *sizes)
        # The modes are those of Unix, on every machine.
        creator = struct.pack("<H", 3 << 8 | 20)
        rest = struct.pack("<3H2L", 0, 0, 0, mode, len(out))
        directory += b"PK\1\2" + creator + common + rest + encoded
        out += b"PK\3\4" + common + encoded + packed
    count = len(files)
    end = struct.pack("<4H2LH", 0, 0, count, count, len(directory), len(out), 0)
    return bytes(out + directory + b"PK\5\6" + end)


def normal(sbom: bytes) -> bytes:
    """Return a list of crates without the time, the random number and the paths of a build."""
    text = re.sub(r"(?<=file://)/[^\"#]*?(?=/crates/)", "", sbom.decode())
    listed = json.loads(text)
    listed.get("metadata", {})["timestamp"] = _time()
    listed.pop("serialNumber", None)
    number = uuid.uuid5(NAMESPACE, json.dumps(listed, sort_keys=True))
    return json.dumps({"serialNumber": f"urn:uuid:{number}", **listed}, indent=1).encode()


def _time() -> str:
    seconds = int(os.environ.get("SOURCE_DATE_EPOCH") or _last_commit())
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _last_commit() -> str:
    command = ["git", "-C", str(ROOT), "log", "-1", "--format=%ct"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "315532800"


def _record(files: dict[str, bytes], record: str) -> bytes:
    out = io.StringIO()
    lines = csv.writer(out, lineterminator="\n")
    for name, content in sorted(files.items()):
        if name != record:
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=")
            lines.writerow((name, f"sha256={digest.decode()}", len(content)))
    lines.writerow((record, "", ""))
    return out.getvalue().encode()


if __name__ == "__main__":
    sys.exit(main())
