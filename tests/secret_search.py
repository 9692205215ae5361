"""Searches the files that a whole run has left for the secrets that its tests used.

Secrets become known by themselves: each secret that a `Credentials` or a `Tls` of this process
gets, and each password in a file of users or credentials that the run wrote. What a program says is
no secret of the run: an installed package has `"keyPassword": "key_password"`. Tests whose secrets
come another way call `used`. At the end of the run none of them may stand in the captured output
and logs of a test, in the `repr` of a living object of pyrmq, or in a file below the run's
temporary directories, and below others that `searched` names: logs, JSON, pickles, bundles. A
`pyrmq.testing.cluster()` removes its directory when it stops, so that is searched just before, for
the secrets that are known by then. Files that exist to keep secrets may have them. The directories
of Apache's servers are not searched: what these log is not pyrmq's.
"""

from __future__ import annotations

import functools
import gc
import io
import json
import os
import re
import tarfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["SecretSearch", "found_in", "planted", "searched", "used"]

SHORTEST = 8
"""Characters of a secret that is searched: shorter ones occur by chance."""
MAX_BYTES = 8 << 20
"""Larger files are segments of stores."""
KEEPERS = re.compile(
    r"\.(toml|ya?ml|pem|properties|conf|py|pyc|bak)$|(users|root|auth|cred|acl|secret)"
)
"""Names of files that keep secrets, or programs of tests that name them."""
PROGRAMS = (".py", ".pyc")
SEGMENT = re.compile(r"\d+")
"""Names of a store's files of messages and positions: many and large in a cluster of every test."""
BUNDLES = (".zip", ".tar", ".gz", ".tgz")
_FIELDS = re.compile(
    r"""["']?(?:secretKey|password|previousPassword|keyPassword)["']?\s*[:=]\s*["']([^"'\s]{8,})["']"""
)
_secrets: set[str] = set()
_planted: set[Path] = set()
_elsewhere: list[Path] = []


def used(secret: str) -> str:
    """Register a secret of a test; return it."""
    from pyrmq._client.security.secrets import HIDDEN

    if len(secret) >= SHORTEST and secret != HIDDEN:
        _secrets.add(secret)
    return secret


def planted(path: Path) -> Path:
    """Except a file into which a test writes a secret to see what becomes of it; return it."""
    _planted.add(path)
    return path


def searched(directory: Path) -> Path:
    """Let the search look into a directory that is not below the run's own; return it."""
    _elsewhere.append(directory)
    return directory


def found_in(path: Path, secrets: re.Pattern[bytes]) -> Iterator[str]:
    """Yield where a file holds a secret: its path, and in a bundle its member."""
    for name, content in _contents(path):
        if secrets.search(content):
            yield name


def _contents(path: Path) -> Iterator[tuple[str, bytes]]:
    data = path.read_bytes()
    if path.suffix in BUNDLES:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                for member in archive.namelist():
                    yield f"{path}:{member}", archive.read(member)
            return
        try:
            with tarfile.open(fileobj=io.BytesIO(data)) as packed:
                for entry in packed.getmembers():
                    file = packed.extractfile(entry)
                    if file is not None and entry.size <= MAX_BYTES:
                        yield f"{path}:{entry.name}", file.read()
        except (tarfile.TarError, EOFError, OSError):
            yield str(path), data
        return
    yield str(path), data


class SecretSearch:
    """The plugin: it learns secrets while tests run, and searches at the end."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._found: list[str] = []
        self._base: Path | None = None
        self._undo: list[tuple[Any, str, Any]] = []

    @pytest.hookimpl
    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Learn the secrets that clients get from now on; see what clusters remove."""
        from pyrmq._client.security.credentials import Credentials
        from pyrmq._client.security.tls import Tls
        from pyrmq.testing import running

        self._learn(Credentials, "secret_key", 1)
        self._learn(Tls, "key_password", None)
        remove = running._remove

        def search_and_remove(folder: Path) -> None:
            try:
                self._look_at_cluster(folder)
            finally:
                remove(folder)

        self._replace(running, "_remove", search_and_remove)

    def _learn(self, kind: type, option: str, position: int | None) -> None:
        original: Any = kind.__init__  # type: ignore[misc]

        @functools.wraps(original)
        def init(made: object, *arguments: Any, **options: Any) -> None:  # noqa: ANN401
            secret = options.get(option)
            if secret is None and position is not None and len(arguments) > position:
                secret = arguments[position]
            if isinstance(secret, str):
                used(secret)
            original(made, *arguments, **options)

        self._replace(kind, "__init__", init)

    def _replace(self, owner: Any, name: str, value: object) -> None:  # noqa: ANN401 - class or module
        self._undo.append((owner, name, getattr(owner, name)))
        setattr(owner, name, value)

    def _look_at_cluster(self, folder: Path) -> None:
        files = [file for file in _files(folder) if not SEGMENT.fullmatch(file.name)]
        self._look_at_files(files)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        """Look at the living objects when a test has brought a new secret."""
        before = len(_secrets)
        try:
            return (yield)
        finally:
            if len(_secrets) > before:
                self._look_at_objects(item.nodeid)

    def _look_at_objects(self, where: str) -> None:
        secrets = _pattern()
        for thing in gc.get_objects():
            # A class may have a property of that name.
            if str(type(thing).__module__).startswith("pyrmq"):
                try:
                    text = repr(thing)
                except Exception:  # noqa: BLE001 - half made or closed
                    continue
                if secrets.search(text.encode(errors="replace")):
                    self._found.append(f"the repr of a {type(thing).__name__} in {where}")

    @pytest.hookimpl
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep what a test printed and logged; secrets may become known later."""
        for title, text in report.sections:
            if text:
                self._texts[f"{title} of {report.nodeid}"] = text

    @pytest.hookimpl
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Search, and fail the run if a secret is where it must not be."""
        factory = getattr(session.config, "_tmp_path_factory", None)
        base = None if factory is None else factory.getbasetemp()
        files = [file for root in (base, *_elsewhere) if root is not None for file in _files(root)]
        for owner, name, original in self._undo:
            setattr(owner, name, original)
        self._look_at_files(files)
        if not _secrets:
            return
        secrets = _pattern()
        for title, text in self._texts.items():
            if secrets.search(text.encode(errors="replace")):
                self._found.append(title)
        reporter = session.config.pluginmanager.get_plugin("terminalreporter")
        if self._found and reporter is not None:
            # The progress of the tests has no end of line yet.
            reporter.write_line("")
            for where in self._found:
                reporter.write_line(f"a secret stands in {where}", red=True)
        if self._found and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def _look_at_files(self, files: list[Path]) -> None:
        for path in files:
            if KEEPERS.search(path.name) and path.suffix not in PROGRAMS:
                _learn_from(path)
        if not _secrets:
            return
        secrets = _pattern()
        for path in files:
            if not KEEPERS.search(path.name) and path not in _planted:
                try:
                    self._found += found_in(path, secrets)
                except OSError:
                    continue


def _pattern() -> re.Pattern[bytes]:
    forms = {form for secret in _secrets for form in (secret, json.dumps(secret)[1:-1])}
    return re.compile(b"|".join(re.escape(form.encode()) for form in sorted(forms)))


def _files(base: Path) -> Iterator[Path]:
    for folder, _, names in os.walk(base):
        for name in names:
            path = Path(folder, name)
            try:
                status = path.lstat()
            except OSError:
                continue
            # A preallocated segment is larger than what it takes on the disk.
            if path.is_file() and not path.is_symlink() and 0 < status.st_size <= MAX_BYTES:
                yield path


def _learn_from(path: Path) -> None:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return
    for secret in _FIELDS.findall(text):
        used(secret)
