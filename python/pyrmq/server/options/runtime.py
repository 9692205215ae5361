"""Changing the options of a running server by request (25 for brokers, 318 for name servers)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyrmq.codes import ResponseCode
from pyrmq.config.option import as_text
from pyrmq.errors import ConfigError
from pyrmq.server.options.properties import decode, parse, read
from pyrmq.server.options.unknown import warn_of_unknown
from pyrmq.server.processors import Refused

if TYPE_CHECKING:
    import os
    from collections.abc import Container, Iterable, Mapping

    from pyrmq import _core
    from pyrmq.config import Options
    from pyrmq.config.option import Option


def pairs_of(request: _core.Request) -> dict[str, str]:
    """Return the pairs of a request's body, which is property text.

    Raises:
        Refused: it cannot be read.

    Example:
        >>> pairs_of(request)  # doctest: +SKIP
        {'enableTopicList': 'false'}
    """
    try:
        return parse(decode(request.body or b""))
    except ConfigError as error:
        raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from error


def readable(options: Options, pairs: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Return the pairs with a value of their option's type, and what is wrong with the others.

    Example:
        >>> from pyrmq.config import NameServerOptions
        >>> readable(NameServerOptions(), {"enableTopicList": "maybe"})
        ({}, ["`enableTopicList` is 'maybe': it must be true or false"])
    """
    good, wrong = {}, []
    for key, value in pairs.items():
        try:
            type(options).from_properties({key: value})
        except ConfigError as error:
            wrong.append(str(error))
        else:
            good[key] = value
    return good, wrong


def changes(options: Options, request: _core.Request) -> dict[str, object]:
    """Return what a request changes: option names with their new values, all checked.

    Unknown keys are ignored with a warning; Apache ignores them silently.

    Raises:
        Refused: a key is on the black list (16), cannot be changed while the server runs, or has
            a wrong value (1). Nothing was changed.

    Example:
        >>> changes(server.options, request)  # doctest: +SKIP
        {'enable_topic_list': False}
    """
    return changes_of(options, pairs_of(request), f"request code {request.code}")


def changes_of(options: Options, pairs: Mapping[str, str], source: str) -> dict[str, object]:
    """Like `changes`, from pairs that were read before.

    Args:
        options: the current options.
        pairs: texts by Apache's property names.
        source: where they come from, for the warning about unknown keys.

    Raises:
        Refused: see `changes`.

    Example:
        >>> from pyrmq.config import NameServerOptions
        >>> changes_of(NameServerOptions(), {"enableTopicList": "false"}, "a test")
        {'enable_topic_list': False}
    """
    try:
        wanted = type(options).from_properties({**options.to_properties(), **pairs})
    except ConfigError as error:
        raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from error
    listed = [key for key in pairs if key in _black_list(options)]
    if listed:
        raise Refused(
            ResponseCode.NO_PERMISSION,
            f"Can not update config in black list. It contains {', '.join(sorted(listed))}; change "
            "the property file and restart",
        )
    warn_of_unknown(options.role, pairs, [item.apache for item in options.fields], source)
    changed = _changed(options, wanted, pairs)
    fixed = [
        f"{item.apache}={as_text(getattr(options, item.name))}" for item in changed if not item.live
    ]
    if fixed:
        raise Refused(
            ResponseCode.SYSTEM_ERROR,
            f"cannot be changed while the {options.role} runs: {', '.join(fixed)}; "
            "change its property file and restart it",
        )
    return {item.name: getattr(wanted, item.name) for item in changed}


def file_changes(
    options: Options, path: str | os.PathLike[str], *, but: Container[str] = ()
) -> dict[str, object]:
    """Return what a property file changes: option names with their new values.

    Args:
        options: the current options.
        path: the file.
        but: names of options that the file must not change.

    Raises:
        ConfigError: the file cannot be read, a value is wrong, or an option changed that can only
            be set at the start.

    Example:
        >>> file_changes(server.options, "broker.conf")  # doctest: +SKIP
        {'broker_permission': 4}
    """
    pairs = read(path)
    warn_of_unknown(options.role, pairs, [item.apache for item in options.fields], str(path))
    wanted = type(options).from_properties(pairs)
    changed = [item for item in _changed(options, wanted, pairs) if item.name not in but]
    values = {item.name: getattr(wanted, item.name) for item in changed}
    check_live(options, values)
    return values


def check_live(options: Options, names: Iterable[str]) -> None:
    """Refuse a change of options that can only be set at the start.

    Raises:
        ConfigError: one of these names is not that of a `live` option.

    Example:
        >>> from pyrmq.config import NameServerOptions
        >>> check_live(NameServerOptions(), ["listen_port"])
        Traceback (most recent call last):
        ...
        pyrmq.errors.ConfigError: cannot be changed while the name server runs: listen_port; ...
    """
    fixed = sorted({item.name for item in options.fields if not item.live} & set(names))
    if fixed:
        raise ConfigError(
            f"cannot be changed while the {options.role} runs: {', '.join(fixed)}; start it again"
        )


def _changed(options: Options, wanted: Options, keys: Container[str]) -> list[Option]:
    """The options among Apache's keys whose values differ from the current ones."""
    return [
        item
        for item in options.fields
        if item.apache in keys and getattr(wanted, item.name) != getattr(options, item.name)
    ]


# Keys that no list can allow (Apache `DefaultRequestProcessor`, `AdminBrokerProcessor`).
_ALWAYS = {
    "name server": "configBlackList;configStorePath;kvConfigPath;rocketmqHome",
    "broker": "configBlackList;brokerConfigPath;rocketmqHome",
}


def _black_list(options: Options) -> set[str]:
    """Apache's keys that no request may change."""
    given = getattr(options, "config_black_list", "")
    listed = f"{given};{_ALWAYS.get(options.role, '')}"
    return {key.strip() for key in listed.split(";")} - {""}
