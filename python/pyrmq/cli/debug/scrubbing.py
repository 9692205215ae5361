"""Texts and trees for a bug report, without secrets.

A tree is cleaned by its keys. A text has no reliable keys: whatever follows the name of a secret is
hidden up to the end of its line. That hides too much rather than too little.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from pyrmq._client.security.secrets import HIDDEN, is_secret
from pyrmq.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

_LINE_CHARACTERS = 4096
_CONFIG_BYTES = 1 << 20
# Each of these is one class of characters: matching takes linear time whatever the text is.
_WORD = re.compile(r"[\w.\\-]+")
_PARTS = re.compile(r"([\s\"']+)")
_ESCAPE = re.compile(r"\\u([0-9a-fA-F]{4})")
_NOTHING = frozenset(" \t\r:=>|\\\"'[{(")
_NAMES = ("authorization", "pwd", "passphrase", "passwort", "aclkey", "apikey", "privatekey")
# A line without any of these has no name of a secret.
_STEMS = ("secret", "pass", "pwd", "token", "cred", "key", "sign", "authorization", "\\u")
_BEGIN, _END = "-----BEGIN ", "-----END "


class Scrubber:
    """Removes secrets: those that are known, and what follows the name of a secret.

    Args:
        secrets: texts that must not appear.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        # Longest first: one may be part of another.
        self._secrets = sorted({text for text in secrets if len(text) > 3}, key=len, reverse=True)

    def text(self, text: str) -> str:
        r"""A text without secrets; long lines are cut.

        Example:
            >>> Scrubber(["s3cret"]).text("user s3cret, topic=orders\npassword = tea, x=1")
            'user (hidden), topic=orders\npassword(hidden)'
        """
        for secret in self._secrets:
            text = text.replace(secret, HIDDEN)
        return "\n".join(_cleaned(text.split("\n")))

    def tree(self, tree: Any) -> Any:  # noqa: ANN401 - JSON
        """A tree for JSON without secrets.

        Example:
            >>> Scrubber([]).tree({"secretKey": "x", "list": ["--password", "y", "t"]})
            {'secretKey': '(hidden)', 'list': ['--password', '(hidden)', 't']}
        """
        if isinstance(tree, dict):
            return {
                self.text(str(key)): HIDDEN
                if _names_secret(str(key)) and value
                else self.tree(value)
                for key, value in tree.items()
            }
        if isinstance(tree, list | tuple):
            return [
                HIDDEN if at and _is_name(tree[at - 1]) and value else self.tree(value)
                for at, value in enumerate(tree)
            ]
        return self.text(tree) if isinstance(tree, str) else tree

    def config(self, path: Path) -> str:
        """A file of options without secrets and comments: TOML, JSON, YAML or Java properties.

        Raises:
            ConfigError: It is not a file, or too large for an options file.

        Example:
            >>> Scrubber([]).config(Path("broker.conf"))  # doctest: +SKIP
            'listenPort=10911...'
        """
        if not path.is_file():
            raise ConfigError(f"`{path}` is not a file")
        with path.open("rb") as file:
            data = file.read(_CONFIG_BYTES + 1)
        if len(data) > _CONFIG_BYTES:
            raise ConfigError(f"`{path}` has more than {_CONFIG_BYTES} bytes: is it a log? --log")
        from pyrmq.server.options.properties import decode, parse

        text = decode(data)
        suffix = path.suffix.lower()
        if _BEGIN in text or suffix in {".yml", ".yaml"}:
            return self.text(text)
        try:
            if suffix == ".toml":
                import tomllib

                return self._dumped(tomllib.loads(text))
            if suffix == ".json" or text.lstrip().startswith(("{", "[")):
                return self._dumped(json.loads(text))
            return self._properties(parse(text))
        except (ValueError, RecursionError, ConfigError):
            # The error itself may quote a secret.
            return "left out: it cannot be read, and might show secrets\n"

    def _dumped(self, tree: object) -> str:
        return json.dumps(self.tree(tree), indent=2, ensure_ascii=False, default=str) + "\n"

    def _properties(self, pairs: dict[str, str]) -> str:
        from pyrmq.server.options.properties import write

        shown, was_secret = {}, False
        for key, value in pairs.items():
            # Without a value it may be what an earlier line named.
            name = HIDDEN if was_secret and not value else self.text(key)
            was_secret = _names_secret(key) and not value
            shown[name] = HIDDEN if _names_secret(key) and value else self.text(value)
        return write(shown)


def _cleaned(lines: Iterable[str]) -> Iterator[str]:
    hides_until, hides_next = "", False
    for whole in lines:
        if hides_until:
            if hides_until in whole:
                hides_until = ""
            continue
        if hides_next and not whole.strip():
            yield whole
            continue
        if hides_next:
            hides_next = whole.endswith("\\")
            yield HIDDEN
            continue
        line, hides_until = _without_key(whole)
        if len(line) > _LINE_CHARACTERS:
            line = f"{line[:_LINE_CHARACTERS]} ({len(line)} characters)"
        # First: the password itself may look like a name.
        line = _without_passwords(line)
        end = _end_of_name(line)
        if end is None:
            yield line
            continue
        value = line[end:]
        hides_next = value.endswith("\\") or set(value) <= _NOTHING
        for quotes in ('"""', "'''"):
            if value.count(quotes) == 1:
                hides_until = quotes
        yield line[:end] + (HIDDEN if value else "")


def _without_key(line: str) -> tuple[str, str]:
    """The line without PEM of a private key, and what ends that; empty if it ended."""
    start = line.find(_BEGIN)
    if start < 0 or "PRIVATE KEY" not in line[start : start + 60]:
        return line, ""
    end = line.find(_END, start)
    shown = f"{line[:start]}(private key {HIDDEN})"
    # What follows the end on the same line may be the next key.
    return shown, "" if end >= 0 else _END


def _end_of_name(line: str) -> int | None:
    """Where the first name of a secret ends; None if there is none."""
    low = line.lower()
    if not any(stem in low for stem in _STEMS):
        return None
    for word in _WORD.finditer(line):
        if _names_secret(word[0]):
            return word.end()
    return None


def _names_secret(word: str) -> bool:
    r"""Whether a word, which may have the escapes of Java and JSON, is the name of a secret.

    Example:
        >>> [_names_secret(word) for word in ("keyP\\u0061ssword", "Authorization", "topic")]
        [True, True, False]
    """
    if "\\" in word:
        word = _ESCAPE.sub(lambda found: chr(int(found[1], 16)), word).replace("\\", "")
    name = word.lower().replace("_", "").replace("-", "")
    return is_secret(name) or name.endswith(_NAMES) or name == "pass"


def _is_name(value: object) -> bool:
    """Whether an item of a list is the name of a secret, whose value is the next item."""
    return isinstance(value, str) and _WORD.fullmatch(value) is not None and _names_secret(value)


def _without_passwords(line: str) -> str:
    """The line without the password of `user:password@host`."""
    if "@" not in line:
        return line
    return "".join(_without_password(part) for part in _PARTS.split(line))


def _without_password(part: str) -> str:
    head, at, host = part.rpartition("@")
    scheme = head.find("://")
    colon = head.find(":", scheme + 3 if scheme >= 0 else 0)
    return part if not at or colon < 0 else f"{head[: colon + 1]}{HIDDEN}@{host}"
