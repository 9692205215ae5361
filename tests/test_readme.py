"""The README's programs run as they stand, but for the address."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from pyrmq.testing import cluster

if TYPE_CHECKING:
    import pytest

README = Path(__file__).resolve().parent.parent / "README.md"


def _blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)


def test_the_producer_and_consumer_of_the_readme_work(capsys: pytest.CaptureFixture[str]) -> None:
    program = next(block for block in _blocks() if "PullConsumer" in block)
    with cluster() as rocketmq:
        exec(
            compile(program.replace("127.0.0.1:9876", rocketmq.name_server), "README.md", "exec"),
            {},
        )
    sent, received = capsys.readouterr().out.strip().splitlines()
    assert "orders" in sent
    assert received.endswith("0 b'two coffees'")


def test_the_cluster_of_the_readme_works(capsys: pytest.CaptureFixture[str]) -> None:
    program = next(block for block in _blocks() if "pyrmq.testing" in block)
    exec(compile(program, "README.md", "exec"), {})
    assert re.fullmatch(r"127\.0\.0\.1:\d+\n", capsys.readouterr().out)
