"""Changing the options of a running server by request (25 for brokers, 318 for name servers)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyrmq.config.option import as_text
from pyrmq.errors import ConfigError
from pyrmq.server.processors import NO_PERMISSION, SYSTEM_ERROR, Refused
from pyrmq.server.properties import decode, parse
from pyrmq.server.unknown import warn_of_unknown

if TYPE_CHECKING:
    from pyrmq import _core
    from pyrmq.config import Options


def changes(options: Options, request: _core.Request) -> dict[str, object]:
    """What a request changes: option names with their new values, all of them checked.

    Keys that no option has are left aside with a warning, as Apache does in silence.

    Raises:
        Refused: a key is on the black list (16), cannot be changed while the server runs, or has
            a wrong value (1). Nothing was changed.

    Example:
        >>> changes(server.options, request)  # doctest: +SKIP
        {'enable_topic_list': False}
    """
    try:
        pairs = parse(decode(request.body or b""))
        wanted = type(options).from_properties({**options.to_properties(), **pairs})
    except ConfigError as error:
        raise Refused(SYSTEM_ERROR, str(error)) from error
    listed = [key for key in pairs if key in _black_list(options)]
    if listed:
        raise Refused(
            NO_PERMISSION, f"Can not update config in black list: {', '.join(sorted(listed))}"
        )
    known = {item.apache: item for item in options.fields}
    warn_of_unknown(options.role, pairs, known, f"request code {request.code}")
    changed = {
        key: item
        for key, item in known.items()
        if key in pairs and getattr(wanted, item.name) != getattr(options, item.name)
    }
    fixed = [
        f"{key}={as_text(getattr(options, item.name))}"
        for key, item in changed.items()
        if not item.live
    ]
    if fixed:
        raise Refused(
            SYSTEM_ERROR,
            f"cannot be changed while the {options.role} runs: {', '.join(fixed)}; "
            "change its property file and start it again",
        )
    return {item.name: getattr(wanted, item.name) for item in changed.values()}


# What no list can free (Apache `DefaultRequestProcessor`, `AdminBrokerProcessor`).
_ALWAYS = {
    "name server": "configBlackList;configStorePath;kvConfigPath;rocketmqHome",
    "broker": "configBlackList;brokerConfigPath;rocketmqHome",
}


def _black_list(options: Options) -> set[str]:
    """Apache's keys that no request may change."""
    given = getattr(options, "config_black_list", "")
    listed = f"{given};{_ALWAYS.get(options.role, '')}"
    return {key.strip() for key in listed.split(";")} - {""}
