"""Record golden frames: a loopback proxy between the real clients, brokers and name servers.

``python -m tests.interop.record`` runs the real servers and clients of every version with both
header forms through the proxy and rewrites ``tests/golden/frames`` and its manifest. Run it in an
empty network (``unshare -n``, then ``ip link set lo up``) so that client ids contain no address of
the machine.

A frame is recorded exactly as its sender wrote it. Only when they are forwarded, route answers are
changed: the broker's port becomes the proxy's (with the same number of digits), so that clients
connect through the proxy.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import re
import socket
import sys
import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from tests.interop.artifacts import VERSIONS
from tests.interop.driver import Driver
from tests.interop.rocketmq import JavaBroker, JavaNameServer
from tests.interop.scenario import Place, run
from tests.reference import frame as wire

if TYPE_CHECKING:
    from collections.abc import Callable

GOLDEN = Path(__file__).parent.parent / "golden"
FRAMES = GOLDEN / "frames"
MANIFEST = GOLDEN / "manifest.json"

RECORDED_BROKER = {
    "transactionTimeOut": 1000,
    "transactionCheckInterval": 1000,
    "timerWheelEnable": "true",
}
MAX_KEPT_BYTES = 24 * 1024
BY_OCCASION = (11, 310, 320, 361)
"""Codes whose bodies depend on the sent message: one frame is kept for each occasion."""
FORBIDDEN = (
    *(
        b"/tmp",
        b"/home",
        b"/root",
        b"/work",
        b"/usr",
        b"/var",
        b"/opt",
        b"java.class.path",
        b"os.name",
    ),
    socket.gethostname().encode() + b"@",
)
"""Texts that reveal the recording machine; a frame with one of them is not kept."""


@dataclass(frozen=True)
class Kept:
    """One frame as it was sent."""

    link: str
    sender: str
    what: str
    request: int
    frame: wire.Frame
    raw: bytes

    @property
    def shape(self) -> tuple[object, ...]:
        """Return the shape of a frame: one frame of each shape is enough."""
        names = None if self.frame.fields is None else tuple(sorted(self.frame.fields))
        carries_messages = self.request in BY_OCCASION and (self.frame.body is not None)
        return (
            self.what if carries_messages else None,
            *(
                self.frame.serialize_type,
                self.frame.is_response,
                self.frame.is_oneway,
                self.request,
                self.frame.code,
            ),
            *(self.frame.language, names, self.frame.body is None, self.frame.remark is None),
        )


@dataclass
class Recorder:
    """Keeps one frame of each shape; ``note`` names the current step."""

    what: str = "start"
    kept: dict[tuple[object, ...], Kept] = field(default_factory=dict)
    dropped: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, what: str) -> None:
        """Set the step of the following frames."""
        self.what = what

    def add(self, link: str, sender: str, raw: bytes, opaques: dict[int, int]) -> None:
        """Take one frame; ``opaques`` maps the requests that this sender answers to their codes."""
        frame = wire.decode(raw)
        request = opaques.get(frame.opaque, -1) if frame.is_response else frame.code
        kept = Kept(link, sender, self.what, request, frame, raw)
        if len(raw) > MAX_KEPT_BYTES or any(text in raw for text in FORBIDDEN):
            self.dropped += 1
            return
        with self._lock:
            self.kept.setdefault(kept.shape, kept)


class Proxy:
    """Listens on 127.0.0.1, relays each client to one server, and records every frame.

    Args:
        link: name of the link, such as ``namesrv``.
        target: port of the server on 127.0.0.1.
        recorder: where frames go.
        rewrite: changes a frame from the server before it is forwarded.
    """

    def __init__(
        self,
        link: str,
        target: int,
        recorder: Recorder,
        rewrite: Callable[[bytes], bytes] | None = None,
    ) -> None:
        """Listen at once; threads serve the connections."""
        self.link = link
        self.target = target
        self.rewrite = rewrite or (lambda raw: raw)
        self._recorder = recorder
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, name=f"proxy-{link}", daemon=True).start()

    @property
    def address(self) -> str:
        """``host:port`` to connect to."""
        return f"127.0.0.1:{self.port}"

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                return
            self._open += [client, server]
            asked: dict[int, int] = {}
            called: dict[int, int] = {}
            for source, sink, sender, mine, theirs in (
                (client, server, "client", asked, called),
                (server, client, "server", called, asked),
            ):
                threading.Thread(
                    target=self._pump, args=(source, sink, sender, mine, theirs), daemon=True
                ).start()

    def _pump(
        self,
        source: socket.socket,
        sink: socket.socket,
        sender: str,
        mine: dict[int, int],
        theirs: dict[int, int],
    ) -> None:
        with contextlib.suppress(OSError, EOFError), source.makefile("rb") as stream:
            while True:
                head = stream.read(4)
                if len(head) < 4:
                    break
                raw = head + stream.read(int.from_bytes(head, "big"))
                parsed = wire.decode(raw)
                if not parsed.is_response:
                    mine[parsed.opaque] = parsed.code
                self._recorder.add(self.link, sender, raw, theirs)
                sink.sendall(self.rewrite(raw) if sender == "server" else raw)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the listener and every connection."""
        for end in (self._listener, *self._open):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def __enter__(self) -> Self:
        """Return the proxy, which already listens."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()


def record_version(version: str, serialize: str) -> Recorder:
    """Run the scenario against the real servers of one version and return the recorded frames."""
    recorder = Recorder()
    with JavaNameServer(version, serialize=serialize) as names, contextlib.ExitStack() as stack:
        ports: dict[int, int] = {}

        def reroute(raw: bytes) -> bytes:
            for real, proxied in ports.items():
                raw = raw.replace(b"127.0.0.1:%d" % real, b"127.0.0.1:%d" % proxied)
            return raw

        name_proxy = stack.enter_context(Proxy("namesrv", names.port, recorder, reroute))
        broker = JavaBroker(
            version, name_proxy.address, serialize=serialize, properties=RECORDED_BROKER
        )
        proxy = stack.enter_context(Proxy("broker", broker.port, recorder))
        ports[broker.port] = proxy.port
        if len(str(broker.port)) != len(str(proxy.port)):
            raise RuntimeError(f"ports of unequal length: {broker.port}, {proxy.port}")

        def through(offset_id: str) -> str:
            return offset_id[:8] + f"{proxy.port:08X}" + offset_id[16:]

        with broker, Driver(version, serialize) as driver:
            place = Place(
                driver=driver,
                namesrv=name_proxy.address,
                broker=proxy.address,
                broker_name=broker.broker_name,
                cluster=broker.cluster,
                note=recorder.note,
                through=through,
            )
            run(place)
            recorder.note("clients close")
        recorder.note("broker stops")
    return recorder


def write_frames(version: str, serialize: str, recorder: Recorder) -> dict[str, Any]:
    """Write one file of frames, back to back, and return its part of the manifest."""
    FRAMES.mkdir(parents=True, exist_ok=True)
    kept = sorted(
        recorder.kept.values(), key=lambda row: (row.request, row.frame.is_response, row.frame.code)
    )
    path = FRAMES / f"{version}-{serialize.lower()}.bin"
    path.write_bytes(b"".join(row.raw for row in kept))
    entries = []
    at = 0
    for row in kept:
        kind = (
            "response" if row.frame.is_response else "oneway" if row.frame.is_oneway else "request"
        )
        entries.append(
            {
                "offset": at,
                "size": len(row.raw),
                "link": row.link,
                "sender": row.sender,
                "kind": kind,
                "request": row.request,
                "code": row.frame.code,
                "serialize": "ROCKETMQ" if row.frame.serialize_type else "JSON",
                "what": row.what,
            }
        )
        at += len(row.raw)
    return {
        "file": f"frames/{path.name}",
        "version": version,
        "serialize": serialize,
        "recorded": datetime.now(UTC).date().isoformat(),
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "frames": entries,
    }


def update_manifest(part: str, rows: list[dict[str, Any]]) -> None:
    """Put rows into ``manifest.json``, one line per frame; they replace those of the same file."""
    tree: dict[str, Any] = json.loads(MANIFEST.read_text()) if MANIFEST.exists() else {}
    files = {row["file"]: row for row in tree.get(part, [])} | {row["file"]: row for row in rows}
    tree[part] = [files[name] for name in sorted(files)]
    text = json.dumps(tree, indent=1, ensure_ascii=False)
    text = re.sub(
        r"\{\n +(\"offset\"[^}]*?)\n +\}", lambda m: "{" + re.sub(r"\n +", " ", m[1]) + "}", text
    )
    MANIFEST.write_text(text + "\n")


def main() -> None:
    """Record what the arguments name."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--versions", default=",".join(VERSIONS))
    parser.add_argument("--serialize", default="JSON,ROCKETMQ")
    arguments = parser.parse_args()
    for version in arguments.versions.split(","):
        for serialize in arguments.serialize.split(","):
            recorder = record_version(version, serialize)
            row = write_frames(version, serialize, recorder)
            update_manifest("frames", [row])
            sys.stdout.write(
                f"{row['file']}: {len(row['frames'])} frames, {recorder.dropped} dropped\n"
            )


if __name__ == "__main__":
    main()
