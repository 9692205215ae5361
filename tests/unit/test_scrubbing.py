"""What a bug report shows of logs and files of options: no secret, whatever form it has."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest

from pyrmq.cli.debug.scrubbing import Scrubber
from pyrmq.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

SECRET = "hunter2-secret-value"
PEM = f"-----BEGIN RSA PRIVATE KEY-----\n{SECRET}\n-----END RSA PRIVATE KEY-----"

TEXTS = [
    f'secretKey = """{SECRET}"""',
    f'secretKey = """\n{SECRET}\n"""',
    f"secretKey = '''{SECRET}'''",
    f"tls.server.keyPassword=abc,{SECRET}",
    f"tls.server.keyPassword {SECRET}",
    f"password=correct {SECRET}",
    f"password=\\\n  {SECRET}",
    f"password=\\\n  abc\\\n  {SECRET}",
    f'{{"password": "a\\"{SECRET}"}}',
    f'{{"msg": "{{\\"password\\": \\"{SECRET}\\"}}"}}',
    f"password:\n  {SECRET}",
    f"password: |\n\n  {SECRET}",
    f"{{'password': b'{SECRET}'}}",
    f"Authorization: Bearer {SECRET}",
    f"Proxy-Authorization: Basic {SECRET}",
    f"http://user:{SECRET}@host/",
    f"dialing user:{SECRET}@host",
    f'{{"url":"amqp://user:{SECRET}@host/","level":"INFO"}}',
    PEM,
    f"got {PEM} from a file",
    PEM.replace("\n", "\\n"),
    f"aclKey {SECRET}",
    f"accessKey=app secretKey={SECRET}",
    f'innerClientAuthenticationCredentials={{"accessKey":"a b","secretKey":"x {SECRET}"}}',
    f"password=ab}}{SECRET}",
    f"password=ab;{SECRET}",
    f"password='ab'{SECRET}",
    f"tls.server.keyP\\u0061ssword={SECRET}",
    f"secret\\:x={SECRET}",
    f"pwd={SECRET}",
    f"secretKey=ä{SECRET}",
    f"password := {SECRET}",
    f"password => {SECRET}",
    f"pyrmq topic list --password {SECRET}",
    f"<password>{SECRET}</password>",
]


@pytest.mark.parametrize("text", TEXTS)
def test_no_form_of_a_secret_is_left_in_a_text(text: str) -> None:
    shown = Scrubber([]).text(f"before\n{text}\nbehind, topic=orders\nlast")
    assert SECRET not in shown
    assert shown.startswith("before\n")
    assert shown.endswith("\nlast")


def test_the_rest_of_a_text_stays() -> None:
    text = "took 3 ms, topic=orders\nclient 10.0.0.1@4711#55 left\n\nat http://host:80/x?y=1"
    assert Scrubber([]).text(text) == text
    assert Scrubber(["s3cret"]).text("with s3cret: fine") == "with (hidden): fine"


def test_items_behind_a_name_are_hidden_in_a_tree() -> None:
    tree = {
        "command": ["--password", SECRET],
        "pairs": [["password", SECRET]],
        "option": f"tls.server.keyPassword=abc,{SECRET}",
        "nested": {"secretKey": {"value": SECRET}},
        "kept": ["topic", "orders"],
    }
    shown = Scrubber([]).tree(tree)
    assert SECRET not in json.dumps(shown)
    assert shown["kept"] == ["topic", "orders"]


@pytest.mark.parametrize(
    ("name", "text", "kept"),
    [
        ("a.conf", f"# {SECRET}\nlistenPort=1\nkeyP\\u0061ssword={SECRET}", "listenPort=1"),
        ("a.conf", f"password=\\\n {SECRET}\nlistenPort=1", "listenPort=1"),
        ("a.conf", f"password\n{SECRET}\nlistenPort=1", "listenPort=1"),
        ("a.conf", f"{PEM}\nlistenPort=1", "listenPort=1"),
        ("a.toml", f'topic = "t"\nsecretKey = """\n{SECRET}"""', '"topic": "t"'),
        ("a.json", json.dumps({"a": [{"password": SECRET}], "topic": "t"}), '"topic": "t"'),
        ("a.json", f'{{"password": "{SECRET}"', "left out"),
        ("a.toml", f'password = "{SECRET}', "left out"),
        ("a.conf", f"keyPassword=\\u00zz{SECRET}", "left out"),
        ("plain_acl.yml", f"accounts:\n- secretKey:\n    {SECRET}\n  perm: PUB", "perm: PUB"),
    ],
)
def test_a_file_of_options_is_read_and_hidden_by_its_keys(
    tmp_path: Path, name: str, text: str, kept: str
) -> None:
    path = tmp_path / name
    path.write_text(text)
    shown = Scrubber([]).config(path)
    assert SECRET not in shown
    assert kept in shown


def test_what_is_no_file_of_options_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not a file"):
        Scrubber([]).config(tmp_path)
    large = tmp_path / "large.conf"
    large.write_bytes(b"a" * (2 << 20))
    with pytest.raises(ConfigError, match="more than"):
        Scrubber([]).config(large)


@pytest.mark.parametrize(
    "unit",
    ["ab01", "secret", "secret.", "password ", "password", "a:", "a@", "@:", "://", "\\u0", "-"],
)
def test_a_long_text_takes_linear_time_and_its_lines_are_cut(unit: str) -> None:
    def seconds(size: int) -> float:
        took = []
        for _ in range(3):
            began = time.thread_time()
            shown = Scrubber([]).text(unit * (size // len(unit)))
            took.append(time.thread_time() - began)
            assert len(shown) < 10_000
        return min(took)

    # Ten times as much text; time that grows with the square would be a hundred times as much.
    assert seconds(500_000) < 40 * max(seconds(50_000), 0.001)
