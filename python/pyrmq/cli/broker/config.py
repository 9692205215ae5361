"""`pyrmq broker config get | set`: the options of running brokers, ours or Apache's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyrmq.cli.arguments import add_name_server, parser
from pyrmq.cli.output import print_rows
from pyrmq.codes import RequestCode
from pyrmq.errors import ConfigError, RmqError

if TYPE_CHECKING:
    import argparse

    from pyrmq.admin import Admin
    from pyrmq.remoting import Client

_TIMEOUT = 10.0


def run(words: list[str]) -> int:
    """Run `pyrmq broker config` with these arguments."""
    given = _parser().parse_args(words)
    changes = dict(map(_pair, given.changes)) if given.verb == "set" else {}
    # After the arguments: `--help` needs none of it.
    from pyrmq.admin import Admin
    from pyrmq.remoting import Client

    with Admin(name_server=given.name_server) as admin, Client() as client:
        if given.verb == "set":
            return _set(admin, client, given, changes)
        return _get(admin, client, given)


def masters(admin: Admin, broker: str | None) -> dict[str, str]:
    """Return the address of each master by its broker name, or of one broker.

    Raises:
        ConfigError: no master has this name.
        RmqError: no name server answered.

    Example:
        >>> masters(admin, None)  # doctest: +SKIP
        {'broker-a': '127.0.0.1:10911'}
    """
    known = {
        one.name: one.master
        for brokers in admin.cluster().values()
        for one in brokers
        if one.master is not None
    }
    if broker is None:
        return known
    if broker not in known:
        raise ConfigError(
            f"no master named `{broker}` is registered; registered are: {', '.join(sorted(known))}"
        )
    return {broker: known[broker]}


def options_of(client: Client, address: str) -> dict[str, str]:
    """The options of a running broker, by Apache's keys.

    Raises:
        RmqError: it did not answer, or refused.

    Example:
        >>> options_of(client, "127.0.0.1:10911")["brokerPermission"]  # doctest: +SKIP
        '6'
    """
    from pyrmq.server.options.properties import decode, parse

    answer = client.ask(address, RequestCode.GET_BROKER_CONFIG, timeout=_TIMEOUT)
    return parse(decode(answer.body or b""))


def change(client: Client, address: str, pairs: dict[str, str]) -> None:
    """Change options of a running broker; all of them, or none.

    Raises:
        RmqError: it did not answer, or refused; the text says which option and why.

    Example:
        >>> change(client, "127.0.0.1:10911", {"brokerPermission": "4"})  # doctest: +SKIP
    """
    from pyrmq.server.options.properties import write

    body = write(pairs).encode()
    client.ask(address, RequestCode.UPDATE_BROKER_CONFIG, None, body, timeout=_TIMEOUT)


def _get(admin: Admin, client: Client, given: argparse.Namespace) -> int:
    rows: list[tuple[str, str, str]] = []
    for broker, address in masters(admin, given.broker).items():
        options = options_of(client, address)
        unknown = [key for key in given.keys if key not in options]
        if unknown:
            raise ConfigError(_unknown(unknown[0], broker, options))
        keys = given.keys or sorted(options)
        rows += [(broker, key, options[key]) for key in keys]
    print_rows(["broker", "option", "value"], rows, as_json=given.json)
    return 0


def _set(admin: Admin, client: Client, given: argparse.Namespace, changes: dict[str, str]) -> int:
    status = 0
    rows: list[tuple[str, str, str | None, str | None, str | None]] = []
    for broker, address in masters(admin, given.broker).items():
        try:
            before = options_of(client, address)
            # A broker ignores keys that it does not know, so a typo would go unnoticed.
            unknown = [key for key in changes if key not in before]
            if unknown:
                raise ConfigError(_unknown(unknown[0], broker, before))
            change(client, address, changes)
            after = options_of(client, address)
        except RmqError as error:
            status = 1
            rows += [(broker, key, None, None, str(error)) for key in changes]
            continue
        rows += [(broker, key, before[key], after[key], None) for key in changes]
    if given.json:
        print_rows(["broker", "option", "before", "after", "error"], rows, as_json=True)
        return status
    done = [row[:4] for row in rows if row[4] is None]
    if done:
        print_rows(["broker", "option", "before", "after"], done, as_json=False)
    for broker, why in {row[0]: row[4] for row in rows if row[4] is not None}.items():
        print(f"{broker} changed nothing: {why}")
    return status


def _unknown(key: str, broker: str, options: dict[str, str]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(key, options, n=1)
    advice = f": did you mean `{near[0]}`?" if near else ""
    return f"the broker {broker} has no option `{key}`{advice}"


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"`{text}` is not KEY=VALUE")
    return key.strip(), value.strip()


def _parser() -> argparse.ArgumentParser:
    made = parser("broker config", "Show or change the options of running brokers.")
    verbs = made.add_subparsers(required=True, metavar="get|set", dest="verb")
    get = verbs.add_parser("get", help="show options, by Apache's names", allow_abbrev=False)
    get.add_argument("keys", nargs="*", metavar="KEY", help="only these (default: all)")
    change_ = verbs.add_parser(
        "set",
        help="change options; a broker started with -c also writes them to its file",
        allow_abbrev=False,
    )
    change_.add_argument("changes", nargs="+", metavar="KEY=VALUE", help="the new values")
    for each in (get, change_):
        add_name_server(each)
        each.add_argument("--broker", metavar="NAME", help="only this broker (default: all)")
    return made
