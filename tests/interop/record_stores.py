"""Record store samples: small directories written by the real broker, with the sent messages.

``python -m tests.interop.record_stores`` rewrites ``tests/golden/stores``: for each version one
store after a clean stop and one after kill -9, each as ``<version>-<end>.tar.xz`` (empty parts pack
to nothing) beside ``<version>-<end>.json.xz`` (settings, messages, committed offsets). Run it in an
empty network, as ``tests.interop.record``.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import lzma
import shutil
import sys
import tarfile
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.interop.artifacts import VERSIONS
from tests.interop.driver import Driver
from tests.interop.record import GOLDEN, update_manifest
from tests.interop.rocketmq import JavaBroker, JavaNameServer
from tests.interop.sample import SETTINGS, await_offsets_on_disk, fill

STORES = GOLDEN / "stores"


def pack(store: Path, target: Path) -> None:
    """Pack a store directory without owners and with fixed order."""

    def plain(info: tarfile.TarInfo) -> tarfile.TarInfo:
        info.uid = info.gid = 0
        info.uname = info.gname = ""
        return info

    with lzma.open(target, "wb", preset=9) as packed, tarfile.open(fileobj=packed, mode="w") as tar:
        for path in content(store):
            tar.add(path, arcname=str(path.relative_to(store)), recursive=False, filter=plain)


def content(store: Path) -> list[Path]:
    """Return the content of a sample, without the lock and the POP database of 5.5.0."""
    found = sorted(store.rglob("*"))
    return [path for path in found if path.name != "lock" and "rocksdbstore" not in path.parts]


def record_store(version: str, end: str) -> dict[str, Any]:
    """Make the broker of one version write a store, stop it, and keep the directory."""
    store = Path(tempfile.mkdtemp(prefix="pyrmq-store-")) / "store"
    with JavaNameServer(version) as names:
        broker = JavaBroker(version, names.address, store_dir=store, properties=SETTINGS).start()
        with Driver(version) as driver:
            found = fill(driver, names.address, broker.address)
            await_offsets_on_disk(store, found)
            if end == "kill":
                broker.kill()
        broker.stop()
    STORES.mkdir(parents=True, exist_ok=True)
    name = f"{version}-{end}"
    archive = STORES / f"{name}.tar.xz"
    pack(store, archive)
    found["settings"] = SETTINGS
    found["files"] = {
        str(path.relative_to(store)): path.stat().st_size
        for path in content(store)
        if path.is_file()
    }
    (STORES / f"{name}.json.xz").write_bytes(lzma.compress(compact(found).encode(), preset=9))
    shutil.rmtree(store.parent)
    return {
        "file": f"stores/{archive.name}",
        "content": f"stores/{name}.json.xz",
        "version": version,
        "end": end,
        "recorded": datetime.now(UTC).date().isoformat(),
        "sha256": hashlib.sha256(archive.read_bytes()).hexdigest(),
    }


def compact(tree: dict[str, Any]) -> str:
    """Write JSON with one line per message."""
    rows = ",\n".join("  " + json.dumps(row, ensure_ascii=False) for row in tree["messages"])
    head = {key: value for key, value in tree.items() if key != "messages"}
    text = json.dumps(head, indent=1, ensure_ascii=False).removesuffix("\n}")
    return f'{text},\n "messages": [\n{rows}\n ]\n}}\n'


def main() -> None:
    """Record what the arguments name."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--versions", default=",".join(VERSIONS))
    parser.add_argument("--ends", default="clean,kill")
    arguments = parser.parse_args()
    for version in arguments.versions.split(","):
        for end in arguments.ends.split(","):
            row = record_store(version, end)
            update_manifest("stores", [row])
            sys.stdout.write(f"{row['file']}: {(GOLDEN / row['file']).stat().st_size} bytes\n")


if __name__ == "__main__":
    main()
