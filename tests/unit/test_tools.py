"""The tools behind the make targets: missing requirements, and the table of the nightly run."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tools import nightly, spark_versions

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def need(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run need.py on a machine that has only the given programs."""

    def run(*words: str, **programs: str) -> subprocess.CompletedProcess[str]:
        for name, script in programs.items():
            path = tmp_path / name
            path.write_text(f"#!/bin/sh\n{script}\n")
            path.chmod(0o755)
        return subprocess.run(
            [sys.executable, ROOT / "tools" / "need.py", *words],
            env={"PATH": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
        )

    return run


def test_an_old_rust_is_named_with_what_is_wanted(
    need: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    done = need("rust", cargo="echo cargo 1.70.0 '(abc 2023-06-01)'")
    assert done.returncode == 1
    assert re.search(r"missing: Rust 1\.\d+ or newer \(found: cargo 1\.70\.0", done.stderr)


def test_all_missing_parts_are_told_in_one_line(
    need: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    done = need("rust", "java", "maven")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert all(name in done.stderr for name in ("`cargo`", "`java`", "`mvn`"))


def test_a_machine_with_java_but_no_compiler_can_run_the_demo_and_not_the_tests(
    need: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    java = "echo 'openjdk version \"21.0.1\" 2023-10-17' >&2"
    assert need("java", java=java).returncode == 0
    done = need("javac", java=java)
    assert done.returncode == 1
    assert "`javac`" in done.stderr


def test_a_machine_without_chromium_is_told_that_the_page_is_not_tested(
    need: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    for programs in ({}, {"chromium": "true"}):
        done = need("--soft", "chromium", **programs)
        assert (done.returncode, done.stderr) == (0, "")
        assert "lacks Chromium and its driver" in done.stdout
        assert "tests that need it are skipped and listed" in done.stdout
    assert need("chromium").returncode == 1
    assert need("--soft", "chromium", chromedriver="true").stdout == ""
    lines = (ROOT / "Makefile").read_text().partition("\nlong:")[2].splitlines()
    assert "need.py --soft chromium" in lines[1], "told before the tests of `long` start"


def test_what_is_missing_is_told_before_anything_is_built() -> None:
    # `make demo` with an interpreter that finds nothing must not create the environment.
    done = subprocess.run(
        ["make", "--dry-run", "--always-make", "demo"],
        cwd=ROOT,
        env={**os.environ, "MAKEFLAGS": ""},
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    lines = done.stdout.splitlines()
    first = {
        word: next(number for number, line in enumerate(lines) if word in line)
        for word in ("need.py rust", "need.py java", "-m venv", "maturin")
    }
    assert list(first.values()) == sorted(first.values())


def test_every_part_of_the_nightly_run_is_a_make_target() -> None:
    targets = re.findall(r"^([a-z0-9-]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(nightly.PARTS) <= set(targets)


def test_the_page_lists_every_part_of_the_nightly_run() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text()
    table = page.split("| part | what it adds to the gate |\n|---|---|\n")[1].split("\n\n")[0]
    assert re.findall(r"^\| `([a-z0-9-]+)` \|", table, re.MULTILINE) == list(nightly.PARTS)


COLLECT = """
import json, sys, pytest

class Names:
    def pytest_collection_finish(self, session):
        self.all = [item.nodeid for item in session.items]

found = {}
for versions in sys.argv[1:]:
    names = Names()
    options = ["--rocketmq-all", f"--rocketmq-versions={versions}"]
    pytest.main(["--collect-only", "-qq", "tests/interop", *options], [names])
    found[versions] = names.all
print(json.dumps(found))
"""


@pytest.mark.timeout(240)
def test_the_parts_of_the_interop_tests_run_each_of_them_once() -> None:
    makefile = (ROOT / "Makefile").read_text()
    parts = re.findall(r"^(interop-\d+):.*\n\t.* VERSIONS=(.+)$", makefile, re.MULTILINE)
    assert [part for part, _ in parts] == [part for part in nightly.PARTS if "interop" in part]
    whole = re.findall(r"^VERSIONS \?= (.+)$", makefile, re.MULTILINE)
    done = subprocess.run(
        [sys.executable, "-c", COLLECT, *whole, *(versions for _, versions in parts)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=200,
    )
    every, *split = json.loads(done.stdout.splitlines()[-1]).values()
    assert len(every) > 800
    assert sorted(every) == sorted(test for part in split for test in part)


def test_the_parts_of_the_torture_kill_each_kind_of_pipeline() -> None:
    makefile = (ROOT / "Makefile").read_text()
    parts = re.findall(r"^(spark-torture-\w+):.*\n\t.* TORTURE=(.+)$", makefile, re.MULTILINE)
    assert [part for part, _ in parts] == [part for part in nightly.PARTS if "torture" in part]
    options = ["--collect-only", "-q", "--nightly", "-m", "nightly", "tests/spark/test_torture.py"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    kinds = re.findall(r"\[(.+)\]", done.stdout)
    assert sorted(kinds) == sorted(kind for _, kind in parts)


@pytest.mark.parametrize(
    ("index", "ran"),
    [
        ("4.3.1, 4.3.0, 4.2.0, 4.1.4, 4.1.0, 3.5.9", ["4.1.4", "4.3.1"]),
        ("5.0.0, 4.2.0, 4.1.4", ["4.1.4"]),  # The gate runs 4.2.0.
        ("", ["4.1.2", "4.10.0"]),  # Offline: what is installed.
    ],
)
def test_the_spark_tests_run_on_the_oldest_line_and_on_the_newest_release(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, index: str, ran: list[str]
) -> None:
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "index"]

    def answer(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        assert command[:-2] == pip
        text = f"pyspark (9)\nAvailable versions: {index}\n  INSTALLED: 4.2.0\n" if index else ""
        return subprocess.CompletedProcess(command, 0, text)

    for line, release in (("4.1", "4.1.2"), ("4.9", "4.9.0"), ("4.10", "4.10.0")):
        (tmp_path / "target/pyspark" / line / f"pyspark-{release}.dist-info").mkdir(parents=True)
    found: list[str] = []

    def run(release: str) -> int:
        found.append(release)
        return 0

    monkeypatch.setattr(spark_versions, "ROOT", tmp_path)
    monkeypatch.setattr(subprocess, "run", answer)
    monkeypatch.setattr(importlib.metadata, "version", lambda _: "4.2.0")
    monkeypatch.setattr(spark_versions, "run", run)
    assert spark_versions.main([]) == 0
    assert found == ran


class Index:
    """A pip that installs an empty PySpark, and a pytest that notes which one it was run on."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.installed: list[str] = []

    def __call__(
        self, command: list[str], *, env: dict[str, str] | None = None, **_: object
    ) -> subprocess.CompletedProcess[str]:
        """Do what a command would."""
        if "index" in command:
            text = "Available versions: 4.1.2, 4.1.1"
            return subprocess.CompletedProcess(command, 0, text)
        if "install" in command:
            release = command[-2].removeprefix("pyspark==")
            pyspark(Path(command[-3]), release)
            self.installed.append(release)
            return subprocess.CompletedProcess(command, 0, "")
        done = START(
            [sys.executable, "-S", "-c", "import pyspark; print(pyspark.__version__)"],
            env=env,
            capture_output=True,
            text=True,
            check=True,
        )
        if "pytest" in command:
            self.ran.append(done.stdout.strip())
        return done


START = subprocess.run


def pyspark(folder: Path, release: str, content: str = "") -> None:
    """Make the directory of a release, with the content of another one if that is given."""
    (folder / "pyspark").mkdir(parents=True)
    (folder / f"pyspark-{release}.dist-info").mkdir()
    text = f"__version__ = {(content or release)!r}\n"
    module = folder / "pyspark" / "__init__.py"
    module.write_text(text)
    # Files of one length and second share their bytecode if it is kept elsewhere.
    os.utime(module, (0, int(release.replace(".", ""))))


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Index:
    """An index with two releases of one line, and no other."""
    found = Index()
    monkeypatch.setattr(spark_versions, "ROOT", tmp_path)
    monkeypatch.setattr(subprocess, "run", found)
    return found


def test_two_releases_of_one_line_are_run_one_after_the_other(index: Index) -> None:
    assert spark_versions.main(["4.1.1", "4.1.2"]) == 0
    assert index.ran == ["4.1.1", "4.1.2"]


def test_a_release_is_run_from_the_directory_in_which_it_is(index: Index, tmp_path: Path) -> None:
    folder = tmp_path / "target/pyspark/4.1.1"
    pyspark(folder, "4.1.1")
    assert spark_versions.main(["4.1.1"]) == 0
    assert spark_versions.install("4.1.1") == folder
    assert (index.installed, index.ran) == ([], ["4.1.1"])


def test_a_directory_with_another_release_is_not_run(
    index: Index, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pyspark(tmp_path / "target/pyspark/4.1", "4.1.1", content="4.0.0")
    assert spark_versions.main(["4.1.1"]) == 1
    assert index.ran == []
    assert "has 4.0.0: delete it" in capsys.readouterr().err


def test_the_nightly_run_counts_what_both_runners_print() -> None:
    text = (
        "===== 3 failed, 10 passed, 2 skipped, 1 error in 12.34s (0:00:12) =====\n"
        "test result: ok. 7 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out\n"
        # With -q, as tools/spark_versions.py runs pytest.
        "1 failed, 20 passed in 1.50s\n"
        "a log line: 5 passed in 1.50s\n"
    )
    assert nightly.counted(text) == {"passed": 37, "failed": 5, "skipped": 2}


@pytest.mark.parametrize(
    ("recipe", "verdict"),
    [
        ("echo '== 2 passed in 0.10s =='", "ok"),
        ("echo '== 2 passed in 0.10s =='; exit 3", "FAILED (status 3)"),
        ("echo '== 1 failed, 2 passed in 0.10s =='; exit 0", "FAILED (status 0)"),
        ("echo nothing", "FAILED (ran no test)"),
        ("sleep 60", "not done after"),
    ],
)
def test_a_part_fails_by_its_status_its_tests_or_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recipe: str, verdict: str
) -> None:
    program = tmp_path / "make"
    program.write_text(f"#!/bin/sh\n{recipe}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(nightly, "LOGS", tmp_path)
    monkeypatch.setattr(nightly, "LIMIT_S", 1 if "sleep" in recipe else 60)
    assert nightly.run("loom").verdict.startswith(verdict)


@pytest.mark.parametrize(
    ("tests", "free_gib", "ends"),
    [
        ("e2e/test_testing.py", 9, True),
        ("e2e/test_testing.py", 30, False),
        ("unit/test_codes.py", 9, False),
    ],
)
def test_a_disk_on_which_no_broker_stores_ends_the_run_before_its_first_test(
    tests: str, free_gib: int, *, ends: bool
) -> None:
    program = (
        "import shutil, sys, pytest\n"
        f"space = shutil._ntuple_diskusage(400 << 30, 0, {free_gib} << 30)\n"
        "shutil.disk_usage = lambda path: space\n"
        f"sys.exit(pytest.main(['--collect-only', '-q', 'tests/{tests}']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == (4 if ends else 0), done.stdout + done.stderr
    told = "98 % are used and 9.0 GiB are free" in done.stdout + done.stderr
    assert told == ends
