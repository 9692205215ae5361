"""The published jars of Apache RocketMQ and our compiled Java programs, kept in a cache.

Everything is in ``${XDG_CACHE_HOME:-~/.cache}/pyrmq-tests``, outside the work tree::

    rocketmq-5.5.0/lib/*.jar      the jars of one version; complete once ``complete`` is next to it
    classes/5.5.0-<hash>/*.class  our programs compiled against them; the hash is over the sources
    go/<hash>, go/<hash>-tls      our program over the Go client; the hash is over the sources
    *.lock                        one lock file for each item being created

A second run fetches nothing and compiles nothing. Several processes may request an item at once:
one creates it, the others wait for its lock.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from tests.e2e.ci import skip_outside_ci

if TYPE_CHECKING:
    from collections.abc import Iterator

VERSIONS = ("5.5.0", "4.9.7", "4.6.1")
"""The RocketMQ versions that the tests know, newest first."""

JAVA_DIR = Path(__file__).parent / "java"
"""Directory of the pom and the Java sources; those in ``src5`` are for clients of 5.x only."""

GO_DIR = Path(__file__).parent / "go"
"""Directory of the Go program and the versions of what it uses."""

MIN_JAVA = 17
MAVEN_TIMEOUT_S = 900


class ArtifactError(RuntimeError):
    """The jars or classes are not available; the text gives the reason and the fix in one line."""


def cache_dir() -> Path:
    """Return the directory of the cache; it exists afterwards."""
    root = os.environ.get("XDG_CACHE_HOME")
    path = (Path(root) if root else Path.home() / ".cache") / "pyrmq-tests"
    path.mkdir(parents=True, exist_ok=True)
    return path


@contextmanager
def locked(name: str) -> Iterator[None]:
    """Hold the lock file ``name`` of the cache while the block runs."""
    with (cache_dir() / f"{name}.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def java_missing() -> str | None:
    """Return in one line what is missing to run the real RocketMQ, or None."""
    for program, package in (("java", "a JDK"), ("javac", "a JDK"), ("mvn", "Maven")):
        if shutil.which(program) is None:
            return (
                f"{program} is not on PATH: the tests against the real RocketMQ need "
                f"Java {MIN_JAVA}+ (JDK) and Maven; install {package}"
            )
    major = java_major()
    if major < MIN_JAVA:
        return (
            f"java is version {major}: the tests against the real RocketMQ need {MIN_JAVA} or newer"
        )
    return None


@cache
def java_major() -> int:
    """Return the major version of the ``java`` on PATH."""
    text = subprocess.run(
        ["java", "-version"], capture_output=True, text=True, check=True, timeout=60
    ).stderr
    number = text.split('"')[1] if '"' in text else "0"
    first = number.split(".")[0].split("-")[0]
    return int(first) if first.isdigit() else 0


def require_java() -> None:
    """Skip the running test if Java or Maven is missing; with ``CI=true`` fail it instead."""
    reason = java_missing()
    if reason is None:
        return
    skip_outside_ci(reason)


@cache
def jars(version: str) -> Path:
    """Return the directory with the jars of one RocketMQ version; the first use fetches them."""
    home = cache_dir() / f"rocketmq-{version}"
    pom = (JAVA_DIR / "pom.xml").read_bytes()
    stamp = hashlib.sha256(pom).hexdigest()
    complete = home / "complete"
    with locked(f"rocketmq-{version}"):
        if complete.exists() and complete.read_text() == stamp:
            return home / "lib"
        shutil.rmtree(home, ignore_errors=True)
        lib = home / "lib"
        lib.mkdir(parents=True)
        (home / "pom.xml").write_bytes(pom)
        command = [
            *("mvn", "-q", "-B", "-f", str(home / "pom.xml"), f"-Drocketmq.version={version}"),
            *("dependency:copy-dependencies", f"-DoutputDirectory={lib}", "-DincludeScope=runtime"),
        ]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=MAVEN_TIMEOUT_S
        )
        if done.returncode != 0 or not any(lib.glob(f"rocketmq-broker-{version}.jar")):
            tail = " / ".join((done.stdout + done.stderr).strip().splitlines()[:3])
            raise ArtifactError(f"Maven could not fetch RocketMQ {version}: {tail}")
        complete.write_text(stamp)
        return lib


@cache
def classes(version: str) -> Path:
    """Return the directory with our Java programs, compiled against one RocketMQ version."""
    lib = jars(version)
    folders = [JAVA_DIR / "src", *([JAVA_DIR / "src5"] if version.startswith("5.") else [])]
    sources = sorted(source for folder in folders for source in folder.glob("*.java"))
    digest = hashlib.sha256(f"{java_major()}".encode())
    for source in sources:
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    target = cache_dir() / "classes" / f"{version}-{digest.hexdigest()[:16]}"
    with locked(f"classes-{version}"):
        if target.exists():
            return target
        target.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(dir=target.parent))
        command = [
            *("javac", "-nowarn", "-Xlint:none", "-encoding", "UTF-8", "-cp", f"{lib}/*"),
            *("-d", str(scratch), *map(str, sources)),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
        if done.returncode != 0:
            shutil.rmtree(scratch)
            raise ArtifactError(f"javac against RocketMQ {version} failed:\n{done.stderr}")
        scratch.rename(target)
        return target


def class_path(version: str) -> str:
    """Return the class path with our programs and the jars of one version."""
    return f"{classes(version)}:{jars(version)}/*"


@cache
def go_program(*, tls: bool = False) -> Path:
    """Return our program over the Go client; the first use fetches the client and compiles it.

    Skips the running test without Go; with ``CI=true`` it fails instead.

    Args:
        tls: Whether the program uses TLS. The client is then that of ``tls.mod``, not the release.
    """
    if shutil.which("go") is None:
        reason = "go is not on PATH: the tests of the Go client need Go 1.21 or newer"
        skip_outside_ci(reason)
    digest = hashlib.sha256()
    for source in sorted(GO_DIR.iterdir()):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    target = cache_dir() / "go" / (digest.hexdigest()[:16] + ("-tls" if tls else ""))
    flags = ["-modfile=tls.mod", "-tags", "tls"] if tls else []
    with locked("go"):
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            done = subprocess.run(
                ["go", "build", *flags, "-o", str(target), "."],
                capture_output=True,
                text=True,
                check=False,
                timeout=MAVEN_TIMEOUT_S,
                cwd=GO_DIR,
            )
            if done.returncode != 0:
                raise ArtifactError(f"go build of the Go client failed:\n{done.stderr}")
    return target
