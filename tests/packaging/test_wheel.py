"""The wheel works on its own: an empty environment, no sources, the README's program."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from benches.e2e.operators import VERBS, clock_rows
from tools.wheel import rewritten

from pyrmq import Producer
from pyrmq.testing import cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent.parent
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def run(*command: str, cwd: Path, **environment: str) -> str:
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, f"{' '.join(command)} failed:\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    maturin = Path(sys.executable).parent / "maturin"
    run(str(maturin), "build", "--release", "--quiet", "--out", str(out), cwd=ROOT)
    (built,) = out.glob("*.whl")
    built.write_bytes(rewritten(built.read_bytes()))
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install only the wheel into an empty environment, and return its Python."""
    home = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", str(home / "venv"), cwd=home)
    python = home / "venv" / "bin" / "python"
    run(str(python), "-m", "pip", "install", "--quiet", "--no-index", str(wheel), cwd=home)
    return python


@pytest.fixture(scope="module")
def name_server(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run `pyrmq server` of the installed wheel."""
    home = tmp_path_factory.mktemp("server")
    command = [
        str(installed.parent / "pyrmq"),
        "server",
        "--listen-port",
        "0",
        "--name-server-port",
        "0",
    ]
    with subprocess.Popen(
        [*command, "--store", str(home / "store"), "--json"],
        cwd=home,
        stdout=subprocess.PIPE,
        text=True,
    ) as server:
        try:
            assert server.stdout is not None
            yield str(json.loads(server.stdout.readline())["name_server"])
        finally:
            server.terminate()
            server.wait(timeout=30)


def test_there_is_one_small_abi3_wheel_without_dependencies(wheel: Path) -> None:
    assert re.match(r"pyrmq_rocketmq-.*-cp311-abi3-.*\.whl", wheel.name)
    assert wheel.stat().st_size < 15_000_000
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (metadata,) = (name for name in names if name.endswith("METADATA"))
        text = archive.read(metadata).decode()
    assert "pyrmq/py.typed" in names
    assert "pyspark_rocketmq/__init__.py" in names
    required = [
        line
        for line in text.splitlines()
        if line.startswith("Requires-Dist") and "extra ==" not in line
    ]
    assert required == []


@pytest.mark.skipif(sys.platform != "linux", reason="manylinux is Linux'")
def test_the_platform_tag_asks_for_no_less_than_the_module_needs(wheel: Path) -> None:
    tag = re.search(r"-manylinux_(\d+)_(\d+)_(\w+)\.whl$", wheel.name)
    assert tag is not None, f"pip takes {wheel.name} on this machine only"
    with zipfile.ZipFile(wheel) as archive:
        libraries = [name for name in archive.namelist() if ".so" in name]
        module = archive.read("pyrmq/_core.abi3.so")
        (described,) = (name for name in archive.namelist() if name.endswith("/WHEEL"))
        text = archive.read(described).decode()
    assert libraries == ["pyrmq/_core.abi3.so"]
    assert f"Tag: cp311-abi3-manylinux_{tag[1]}_{tag[2]}_{tag[3]}\n" in text
    # The module contains the names of the C library's symbol versions.
    versions = re.findall(rb"\0GLIBC_(\d+)\.(\d+)", module)
    assert versions
    needed = max((int(major), int(minor)) for major, minor in versions)
    assert needed <= (int(tag[1]), int(tag[2]))
    assert tag[3] == platform.machine()


def test_the_first_program_of_the_readme_runs_from_the_wheel(
    installed: Path, name_server: str, tmp_path: Path
) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    program = next(block for block in re.findall(r"```python\n(.*?)```", readme, re.DOTALL))
    out = run(str(installed), "-c", program.replace("127.0.0.1:9876", name_server), cwd=tmp_path)
    assert "b'two coffees'" in out


def test_verbs_are_measured_from_the_wheel(wheel: Path) -> None:
    with cluster() as running:
        with Producer(name_server=running.name_server) as producer:
            producer.send("t", b"x", keys="k")
        rows = list(clock_rows(wheel, running.name_server, rounds=1, runs=2))
    assert [row.what.split("`")[1] for row in rows] == [f"pyrmq {verb}" for verb in VERBS]
    assert all(row.figures["ours"][0] > 0 for row in rows)


def test_the_other_pyrmq_in_our_place_is_named(
    wheel: Path, installed: Path, tmp_path: Path
) -> None:
    """Its files overwrite ours, as the second of two installations does."""
    site = tmp_path / "site"
    run(
        str(installed),
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-index",
        "--target",
        str(site),
        str(wheel),
        cwd=tmp_path,
    )
    (site / "pyrmq" / "__init__.py").write_text("from pyrmq.publisher import Publisher\n")
    (site / "pyrmq" / "publisher.py").write_text("class Publisher: ...\n")
    done = subprocess.run(
        [str(installed), "-S", "-c", "import sys, pyrmq_rocketmq; sys.exit(pyrmq_rocketmq.main())"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode != 0
    assert "RabbitMQ" in done.stderr
    assert "pip uninstall pyrmq" in done.stderr


def test_the_wheel_lists_its_crates_with_their_licences(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if "/sboms/" in name)
        listed = json.loads(archive.read(name))
    assert listed["bomFormat"] == "CycloneDX"
    crates = {part["name"]: part for part in listed["components"]}
    assert {"ring", "rustls", "tokio", "pyo3", "zstd-sys", "pyrmq-store"} <= crates.keys()
    assert all(part["version"] for part in crates.values())
    assert not [name for name, part in crates.items() if not part.get("licenses")]


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_two_builds_of_the_native_module_give_equal_wheels() -> None:
    """The crates that it is linked from are compiled once; both links begin from them."""
    release, home = ROOT / "target" / "release", ROOT / "target" / "twice"
    shutil.rmtree(home, ignore_errors=True)
    wheels = []
    try:
        for name in ("one", "two"):
            target, out = home / name, home / f"out-{name}"
            shutil.copytree(release, target / "release", copy_function=os.link, symlinks=True)
            # A lock of its own, and a module that is missing.
            (target / "release" / ".cargo-lock").unlink(missing_ok=True)
            for stale in (target / "release").rglob("*pyrmq_core*"):
                stale.unlink()
            maturin = Path(sys.executable).parent / "maturin"
            command = [str(maturin), "build", "--release", "--quiet", "--out", str(out)]
            subprocess.run(
                [*command, "--target-dir", str(target)],
                cwd=ROOT,
                env={**os.environ, "SOURCE_DATE_EPOCH": "1700000000"},
                check=True,
                timeout=1700,
            )
            (built,) = out.glob("*.whl")
            wheels.append(rewritten(built.read_bytes()))
        assert wheels[0] == wheels[1]
    finally:
        shutil.rmtree(home, ignore_errors=True)
