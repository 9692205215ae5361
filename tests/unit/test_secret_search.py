"""The search for secrets at the end of a run finds them, and finds nothing else."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
SECRET = "a-secret-that-must-not-be-seen"

LEAKS = {
    "a log file": "(tmp_path / 'server.log').write_text(f'login with {secret}')",
    "a pickle": "(tmp_path / 'plan.pickle').write_bytes(pickle.dumps({'key': secret}))",
    "a bundle": "shutil.make_archive(str(tmp_path / 'bundle'), 'gztar', folder(tmp_path, secret))",
    "the output": "print('login with', secret)",
    "the log": "logging.getLogger('x').warning('login with %s', secret)",
    "a repr": "kept.append(Client())",
    "a log elsewhere": "(elsewhere() / 'far.log').write_text(secret)",
    "a server's log in a cluster that has stopped": "clustered('stopped.log', secret)",
}
SEEN = (
    "server.log",
    "far.log",
    "stopped.log",
    "plan.pickle",
    "bundle.tar.gz:",
    "stdout",
    "Captured log",
    "repr of a Client",
)

HEAD = f"""
import logging, pathlib, pickle, shutil
from pyrmq import Credentials
from pyrmq.testing import cluster
from tests.secret_search import searched

kept, secret = [], "{SECRET}"

class Client:
    __module__ = "pyrmq.x"
    __repr__ = lambda self: secret

def elsewhere():
    # In the working directory, which is not below the run's own.
    made = searched(pathlib.Path("elsewhere").absolute())
    made.mkdir()
    return made

def clustered(name, secret):
    with cluster() as rocketmq:
        (rocketmq.store.parent / name).write_text(secret)
    assert not rocketmq.store.parent.exists()

def folder(tmp_path, secret):
    folder = tmp_path / "root-of-bundle"
    folder.mkdir()
    (folder / "notes.txt").write_text(secret)
    return folder

def test_nothing(tmp_path):
    Credentials("bob", secret)
    (tmp_path / "users.json").write_text('{{"password": "' + secret + '"}}')
"""


def run(body: str) -> subprocess.CompletedProcess[str]:
    # Not below this run's own directories, which are searched as well.
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        (folder / "test_it.py").write_text(HEAD + body)
        (folder / "conftest.py").write_text(
            "from tests.secret_search import SecretSearch\n"
            "def pytest_configure(config):\n"
            "    config.pluginmanager.register(SecretSearch())\n"
        )
        command = [sys.executable, "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        command += ["-p", "no:pyrmq", "--basetemp", made + "/base", "-c", "/dev/null"]
        return subprocess.run(
            [*command, "--rootdir", made, made],
            capture_output=True,
            text=True,
            check=False,
            timeout=25,
            cwd=made,
            env={"PYTHONPATH": f"{ROOT}:{ROOT / 'python'}", "PATH": "/usr/bin:/bin"},
        )


def test_a_run_that_leaves_secrets_somewhere_fails_and_names_each_place() -> None:
    tests = (
        f"\ndef test_{at}(tmp_path):\n    Credentials('bob', secret + str({at}))\n    {leak}\n"
        for at, leak in enumerate(LEAKS.values())
    )
    done = run("".join(tests))
    assert done.returncode == 1, done.stdout + done.stderr
    found = [line for line in done.stdout.splitlines() if line.startswith("a secret stands in")]
    for place in SEEN:
        assert any(place in line for line in found), (place, found)


def test_a_run_whose_secrets_lie_in_their_own_files_passes() -> None:
    # As in an installed package: names of options, files that name these options, and what stands
    # in the place of a secret.
    done = run(
        "\ndef test_names_of_options(tmp_path):\n"
        "    (tmp_path / 'tls.py').write_text('{\"keyPassword\": \"key_password\"}')\n"
        "    (tmp_path / 'broker.conf').write_text('password = \"(hidden)\"')\n"
        "    (tmp_path / 'server.log').write_text('key_password=None password=(hidden)')\n"
    )
    assert done.returncode == 0, done.stdout + done.stderr
