"""Importing pyrmq: quick, quiet, and clear about another package of the same name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import pyrmq
import pyrmq_rocketmq

OURS = Path(next(iter(pyrmq.__path__))) / "__init__.py"


def python(program: str, *paths: Path) -> subprocess.CompletedProcess[str]:
    """Run a program in a fresh interpreter with these paths first."""
    prelude = f"import sys; sys.path[:0] = {[str(path) for path in paths]!r}\n"
    ours = f"sys.path.append({str(OURS.parents[1])!r})\n"
    return subprocess.run(
        [sys.executable, "-c", prelude + ours + program],
        capture_output=True,
        text=True,
        timeout=25,
        check=False,
    )


@pytest.fixture
def rabbit(tmp_path: Path) -> Path:
    """Create files that look like the RabbitMQ library PyRMQ."""
    package = tmp_path / "pyrmq"
    package.mkdir()
    (package / "__init__.py").write_text("from pyrmq.publisher import Publisher\n")
    (package / "publisher.py").write_text("class Publisher: ...\n")
    return tmp_path


def test_nothing_starts_at_import() -> None:
    done = python(
        "import threading, os, pyrmq\n"
        "print(threading.active_count(), len(os.listdir('/proc/self/task')))\n"
        "print([name for name in sys.modules if name.startswith(('pyrmq.', 'asyncio'))])\n"
    )
    assert done.stdout.splitlines() == ["1 1", "['pyrmq._core']"], done.stderr


def test_the_runtime_has_a_thread_more_than_a_disk_that_hangs_takes_even_on_one_processor() -> None:
    done = python(
        "import os, pathlib, pyrmq\n"
        "os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])\n"
        "producer = pyrmq.Producer(name_server='127.0.0.1:1', group='g')\n"
        "threads = pathlib.Path('/proc/self/task').glob('*/comm')\n"
        "print([thread.read_text() for thread in threads].count('pyrmq\\n'))\n"
    )
    assert done.stdout == "3\n", done.stderr


def test_every_public_name_loads() -> None:
    done = python("import pyrmq\nfor name in pyrmq.__all__: getattr(pyrmq, name)\n")
    assert done.returncode == 0, done.stderr


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Publisher'"):
        _ = pyrmq.Publisher
    assert "Producer" in dir(pyrmq)


def test_the_rabbitmq_library_of_the_same_name_is_recognised(rabbit: Path) -> None:
    done = python("import pyrmq_rocketmq; pyrmq_rocketmq.check()", rabbit)
    assert done.returncode == 1
    for part in ("RabbitMQ library PyRMQ", str(rabbit / "pyrmq"), "pip uninstall pyrmq"):
        assert part in done.stderr


def test_the_command_says_so_too(rabbit: Path) -> None:
    done = python("import pyrmq_rocketmq; sys.exit(pyrmq_rocketmq.main())", rabbit)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: `import pyrmq` finds another package")


def test_our_package_overwritten_in_part_is_recognised(rabbit: Path) -> None:
    (rabbit / "pyrmq" / "__init__.py").write_bytes(OURS.read_bytes())
    done = python("import pyrmq", rabbit)
    assert done.returncode == 1
    assert "finds another package at" in done.stderr


def test_a_source_tree_that_is_not_built_says_how_to_build(tmp_path: Path) -> None:
    package = tmp_path / "pyrmq"
    package.mkdir()
    (package / "__init__.py").write_bytes(OURS.read_bytes())
    (package / "remoting.py").write_text("")
    done = python("import pyrmq", tmp_path)
    assert done.returncode == 1
    assert "`make dev` builds it" in done.stderr


def test_ours_passes_the_check() -> None:
    pyrmq_rocketmq.check()
