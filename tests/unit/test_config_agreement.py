"""The options in Python and Rust agree: names, defaults, bounds; the generated pages."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from tools import gen_compat, gen_options, gen_rights

from pyrmq import _core
from pyrmq.codes import RequestCode
from pyrmq.config import BrokerOptions, NameServerOptions, Options
from pyrmq.config.option import INT_MAX, LONG_MAX
from pyrmq.errors import ConfigError
from pyrmq.server.security.keys import PYTHON_ONLY

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType


class Role(NamedTuple):
    """One role on both sides."""

    options: type[Options]
    keys: Callable[[], list[str]]
    check: Callable[[list[tuple[str, str]]], list[str]]
    python_only: dict[str, str]


SECURITY = dict.fromkeys(PYTHON_ONLY, "the users' file is Python's")
NAME_SERVER = Role(
    NameServerOptions,
    _core.name_server_keys,
    _core.name_server_check,
    {
        "configBlackList": "request code 318 is a Python row",
        "configStorePath": "request code 318 is a Python row",
        "kvConfigPath": "the key-value configuration is Python's",
        "enableAllTopicList": "206 is a Python row",
        "metricsPort": "the HTTP port is Python's",
        "enableTopicList": "224 and 311 to 313 are Python rows",
        **SECURITY,
    },
)
BROKER = Role(
    BrokerOptions,
    _core.broker_keys,
    _core.broker_check,
    {
        "logLevel": "the log is Python's",
        "metricsPort": "the HTTP port is Python's",
        "configBlackList": "request code 25 is a Python row",
        "metricsTop": "what the port lists is Python's",
        "aclEnable": "the files of accounts are Python's",
        "rocketmqHome": "the files of accounts are Python's",
        "rocketmq.acl.plain.file": "the files of accounts are Python's",
        **SECURITY,
    },
)
ROLES = pytest.mark.parametrize("role", [NAME_SERVER, BROKER], ids=["name server", "broker"])

# Options whose bounds depend on others, with values that allow the whole range.
BESIDE = {
    "mappedFileSizeCommitLog": ("maxMessageSize", "1"),
    "maxMessageSize": ("mappedFileSizeCommitLog", str(INT_MAX)),
}
# Bounds that the core narrows further, with the reason.
NARROWER = {
    "brokerId": "slaves are not built yet",
    "mappedFileSizeConsumeQueue": "a multiple of 20",
    "timerPrecisionMs": "one of four",
}

CRATES = Path(__file__).resolve().parents[2] / "crates"
PYTHON = CRATES.parent / "python" / "pyrmq"


@ROLES
def test_both_sides_have_the_same_options(role: Role) -> None:
    python = {item.apache for item in role.options.fields}
    assert set(role.keys()) ^ python == set(role.python_only)


@ROLES
def test_both_sides_have_the_same_defaults(role: Role) -> None:
    pairs = role.options().to_properties()
    known = set(role.keys())
    # The core has no default directory: Python knows the home directory.
    assert role.check([pair for pair in pairs.items() if pair[0] in known]) == []


@ROLES
def test_both_sides_have_the_same_bounds(role: Role) -> None:
    known = set(role.keys())
    for item in role.options.fields:
        key = item.apache
        if item.kind is not int or key not in known or key in NARROWER:
            continue
        low, high = item.minimum, item.maximum
        beside = [BESIDE[key]] if key in BESIDE else []
        for value in (low, high):
            role.check([*beside, (key, str(value))])
        for value in (low - 1, high + 1):
            if value <= LONG_MAX:
                with pytest.raises(ConfigError, match=key):
                    role.check([*beside, (key, str(value))])


@pytest.mark.parametrize("file", ["broker/src/options/mod.rs", "nameserver/src/options.rs"])
def test_every_option_of_a_server_is_read_somewhere(file: str) -> None:
    declared = re.findall(
        r"^    (\w+): .+ = .+, \"\w+\", ", (CRATES / file).read_text(), re.MULTILINE
    )
    assert len(declared) > 10
    sources = [
        *CRATES.glob("*/src/**/*.rs"),
        *(path for path in PYTHON.rglob("*.py") if path.parent.name not in ("config", "testing")),
    ]
    read = set(re.findall(r"\.([a-z]\w*)\b", "".join(path.read_text() for path in sources)))
    assert [name for name in declared if name not in read] == []


@pytest.mark.parametrize(
    "page", [gen_compat, gen_options, gen_rights], ids=["compat", "options", "rights"]
)
def test_the_generated_pages_are_up_to_date(page: ModuleType) -> None:
    assert page.PAGE.read_text(encoding="utf-8") == page.render(), "run `make docs`"


def test_every_code_that_is_served_has_a_test_that_asks_by_it() -> None:
    served = gen_compat.served()
    assert len(served) > 70
    tests = gen_compat.proving_tests()
    assert [name for name in served if name not in tests] == []


@pytest.mark.parametrize(
    ("code", "file"),
    [
        (RequestCode.SEND_MESSAGE, "send_pull.rs"),
        (RequestCode.PULL_MESSAGE, "send_pull.rs"),
        (RequestCode.REGISTER_BROKER, "name_server.rs"),
        (RequestCode.SEND_MESSAGE_V2, "send_pull.rs"),
        (RequestCode.POP_MESSAGE, "pop.rs"),
    ],
)
def test_the_page_names_a_test_in_which_the_server_of_a_code_serves_it(
    code: RequestCode, file: str
) -> None:
    where, test = gen_compat.proving_tests()[code.name].split(": ")
    assert where == file
    # Tests of refusals, and of the table of rows, prove less.
    assert not re.search("refus|bad_input|rows", test)
