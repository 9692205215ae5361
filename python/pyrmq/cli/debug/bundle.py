"""`pyrmq debug bundle`: one archive for a bug report, without bodies of messages and secrets."""

from __future__ import annotations

import io
import json
import os
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from pyrmq._client.security.credentials import parsed
from pyrmq._client.security.secrets import is_secret
from pyrmq.cli.arguments import add_name_server, parser, seconds
from pyrmq.cli.debug.scrubbing import Scrubber
from pyrmq.cli.output import counted, print_json
from pyrmq.errors import ConfigError, RmqError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Mapping

    from pyrmq.doctor.facts import BrokerFacts, NameServerFacts, Query

_LOG_BYTES = 2 << 20
_MAX_FILES = 100_000
_PACKAGES = (
    *("pyrmq-rocketmq", "pyarrow", "pyspark", "pandas", "opentelemetry-api"),
    *("prometheus-client", "starlette", "uvicorn"),
)


def run(_verb: str, words: list[str]) -> int:
    """Run `pyrmq debug` with these arguments."""
    given = _parser().parse_args(words)
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    target = Path(given.file or f"pyrmq-debug-{stamp}.tar.gz")
    if target.exists():
        raise ConfigError(f"{target} exists already: name a file that does not")
    scrubber = Scrubber(_known_secrets())
    files = {
        "about.json": _json(_about()),
        "environment.json": _json(_environment()),
        **_of_cluster(given),
    }
    if given.store:
        files["store.json"] = _json(_store(Path(given.store)))
    for number, log in enumerate(given.log):
        files[f"logs/{number}-{Path(log).name}"] = _tail(Path(log))
    for number, config in enumerate(given.config):
        files[f"config/{number}-{Path(config).name}"] = scrubber.config(Path(config))
    _write(target, f"pyrmq-debug-{stamp}", files, scrubber)
    if given.json:
        print_json({"file": str(target), "files": sorted(files)})
    else:
        size = target.stat().st_size // 1024
        print(f"wrote {target}: {counted(len(files), 'file')}, {size} KiB; look at it before you")
        print("send it: it names topics, groups, addresses and options")
    return 0


def _write(target: Path, root: str, files: Mapping[str, str], scrubber: Scrubber) -> None:
    import tarfile

    part = target.with_name(f".{target.name}.part")
    try:
        # Only its owner may read it: names of topics and addresses are private.
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with (
            os.fdopen(descriptor, "wb") as file,
            tarfile.open(fileobj=file, mode="w:gz") as archive,
        ):
            for name, text in sorted(files.items()):
                data = _clean(name, text, scrubber).encode("utf-8", "backslashreplace")
                entry = tarfile.TarInfo(f"{root}/{name}")
                entry.size, entry.mtime = len(data), int(time.time())
                archive.addfile(entry, io.BytesIO(data))
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


def _clean(name: str, text: str, scrubber: Scrubber) -> str:
    """A file of the archive without secrets. Those in folders came from the user."""
    if name.startswith("config/"):
        return text
    if name.startswith("logs/"):
        return scrubber.text(text)
    return json.dumps(scrubber.tree(json.loads(text)), indent=2, ensure_ascii=False)


def _json(tree: object) -> str:
    return json.dumps(tree, default=str)


def _known_secrets() -> list[str]:
    """The secrets that this process knows: from its environment and its credentials file."""
    found = [value for name, value in os.environ.items() if is_secret(name)]
    path = os.environ.get("PYRMQ_CREDENTIALS")
    if path:
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, ValueError):
            return found
        found += _texts(parsed(Path(path), text))
    return found


def _texts(tree: object) -> list[str]:
    """All values of a tree, however deep."""
    if isinstance(tree, dict):
        return [text for value in tree.values() for text in _texts(value)]
    return [tree] if isinstance(tree, str) else []


def _about() -> dict[str, object]:
    import platform
    import resource
    from importlib.metadata import PackageNotFoundError, version

    packages: dict[str, str | None] = {}
    for name in _PACKAGES:
        try:
            packages[name] = version(name)
        except PackageNotFoundError:
            packages[name] = None
    limits = {
        name: _first_line(Path("/sys/fs/cgroup") / name) for name in ("memory.max", "cpu.max")
    }
    return {
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "system": platform.platform(),
        "libc": " ".join(platform.libc_ver()),
        "processors": os.cpu_count(),
        "memory": _first_line(Path("/proc/meminfo")),
        "open_files": resource.getrlimit(resource.RLIMIT_NOFILE),
        "cgroup": limits,
        "packages": packages,
    }


def _first_line(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8").partition("\n")[0]
    except OSError:
        return None


def _environment() -> dict[str, str]:
    names = ("PYRMQ_", "NAMESRV_", "ROCKETMQ_", "LANG", "LC_", "TZ", "PYTHON")
    return {name: value for name, value in sorted(os.environ.items()) if name.startswith(names)}


def _of_cluster(given: argparse.Namespace) -> dict[str, str]:
    from pyrmq._client.values import name_servers
    from pyrmq.doctor import examine
    from pyrmq.doctor.facts import Query, collect

    query = Query(name_servers(given.name_server), None, None, given.timeout)
    facts = collect(query)
    findings = examine(given.name_server, timeout=given.timeout)
    files = {
        "doctor.json": _json([asdict(finding) for finding in findings]),
        "name-servers.json": _json([_of_name_server(one) for one in facts.name_servers]),
        "brokers.json": _json([_of_broker(one) for one in facts.brokers]),
    }
    files["topics-and-groups.json"] = _json(_tables(facts.brokers, query))
    return files


def _of_name_server(facts: NameServerFacts) -> dict[str, object]:
    return {
        "address": facts.address,
        "dialed": f"{facts.dialed.step} {facts.dialed.detail}".strip(),
        "brokers": {f"{name} {number}": at for (name, number), at in facts.brokers.items()},
        "clusters": facts.clusters,
        "status": facts.status,
        "clock_offset_seconds": facts.clock_offset,
    }


def _of_broker(facts: BrokerFacts) -> dict[str, object]:
    return {
        "broker": facts.name,
        "id": facts.number,
        "address": facts.address,
        "runtime": facts.runtime,
        "config": facts.config,
        "status": facts.status,
        "clock_offset_seconds": facts.clock_offset,
    }


def _tables(brokers: Iterable[BrokerFacts], query: Query) -> dict[str, object]:
    """Settings of topics and groups, and the offsets of groups, of each broker that answers."""
    from pyrmq import _core
    from pyrmq.codes import RequestCode
    from pyrmq.remoting import Client

    codes = {
        "topics": RequestCode.GET_ALL_TOPIC_CONFIG,
        "groups": RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        "offsets": RequestCode.GET_ALL_CONSUMER_OFFSET,
    }
    found: dict[str, object] = {}
    with Client(query.timeout) as client:
        for broker in brokers:
            if not broker.runtime:
                continue
            tables: dict[str, object] = {}
            for name, code in codes.items():
                try:
                    answer = client.ask(broker.address, code, timeout=query.timeout)
                    tables[name] = _core.parse_json(answer.body or b"{}")
                except RmqError as error:
                    tables[name] = {"error": str(error)}
            found[f"{broker.name} {broker.number}"] = tables
    return found


def _store(root: Path) -> dict[str, object]:
    """Names, sizes and times of a store's files, without their content."""
    if not root.is_dir():
        raise ConfigError(f"{root} is not a directory")
    files: list[list[str | int]] = []
    for place, _, names in os.walk(root):
        for name in sorted(names):
            path = Path(place) / name
            try:
                status = path.stat()
            except FileNotFoundError:
                continue
            if len(files) < _MAX_FILES:
                on_disk = status.st_blocks * 512
                relative = str(path.relative_to(root))
                files.append([relative, status.st_size, on_disk, round(status.st_mtime)])
    space = os.statvfs(root)
    return {
        "columns": ["file", "bytes", "bytes on disk", "modified, s since 1970"],
        "files": files,
        "free_bytes": space.f_bavail * space.f_frsize,
        "total_bytes": space.f_blocks * space.f_frsize,
        "abort": _first_line(root / "abort"),
    }


def _tail(path: Path) -> str:
    if not path.is_file():
        raise ConfigError(f"`{path}` is not a file")
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _LOG_BYTES))
        data = file.read()
    # The first line may be incomplete.
    text = data.decode("utf-8", "replace")
    return text if size <= _LOG_BYTES else text.partition("\n")[2]


def _parser() -> argparse.ArgumentParser:
    made = parser("debug", "Collect what a bug report needs.")
    verbs = made.add_subparsers(required=True, metavar="bundle")
    bundle = verbs.add_parser(
        "bundle",
        help="one archive: versions, doctor, options, statistics; no bodies, no secrets",
        allow_abbrev=False,
    )
    bundle.add_argument("file", nargs="?", help="default: pyrmq-debug-<time>.tar.gz")
    add_name_server(bundle)
    bundle.add_argument("--store", metavar="DIR", help="list the files of this store directory")
    bundle.add_argument(
        "--log",
        action="append",
        default=[],
        metavar="FILE",
        help="include the end of this log; repeatable",
    )
    bundle.add_argument(
        "--config",
        action="append",
        default=[],
        metavar="FILE",
        help="include this options file, TOML, JSON or properties; repeatable",
    )
    bundle.add_argument(
        "--timeout",
        type=seconds,
        default=3.0,
        metavar="SECONDS",
        help="limit for each request (default: 3)",
    )
    return made
