r"""Java property files, the format of `broker.conf` and `namesrv.properties`.

Invariants: `parse` reads the output of `write` back unchanged, and so does Java's
`Properties.load`. A byte sequence that is valid UTF-8 is read as UTF-8, anything else as Latin-1
(which is what Java reads always); `write` therefore escapes everything outside ASCII.

The grammar is that of `java.util.Properties`: `key=value`, `key:value` or `key value`; `#` and `!`
open a comment line; a backslash escapes the next character (`\t \n \r \f \uXXXX`, any other
stands for itself); an odd number of backslashes at the end of a line continues it on the next,
whose leading blanks are dropped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyrmq.errors import ConfigError

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping

_BLANKS = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPED = {"\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f", "\\": "\\\\"}
_UNICODE_DIGITS = 4


def parse(text: str) -> dict[str, str]:
    r"""Read property text. The last value of a repeated key wins.

    Args:
        text: the property text, lines ended by CR, LF or both.

    Returns:
        The pairs in the order of their first appearance.

    Raises:
        ConfigError: a `\u` escape is not followed by four hexadecimal digits.

    Example:
        >>> parse("listenPort = 9876\nname: a\\\n  b")
        {'listenPort': '9876', 'name': 'ab'}
    """
    pairs: dict[str, str] = {}
    for line in _logical_lines(text):
        key, value = _split(line)
        pairs[_unescape(key)] = _unescape(value)
    return pairs


def read(path: str | os.PathLike[str]) -> dict[str, str]:
    r"""Read a property file, as UTF-8 if it is valid UTF-8, otherwise as Latin-1.

    Raises:
        ConfigError: the file cannot be read, or contains a broken `\u` escape.

    Example:
        >>> read("broker.conf")  # doctest: +SKIP
        {'brokerName': 'broker-a', 'listenPort': '10911'}
    """
    return parse(read_text(path))


def read_text(path: str | os.PathLike[str]) -> str:
    r"""The text of a property file, as UTF-8 if it is valid UTF-8, otherwise as Latin-1.

    Raises:
        ConfigError: the file cannot be read.

    Example:
        >>> read_text("broker.conf")  # doctest: +SKIP
        '# ours\nlistenPort=10911\n'
    """
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - pathlib's import costs more than the start
            return decode(file.read())
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError(f"cannot read the property file `{path}`: {reason}") from error


def decode(data: bytes) -> str:
    r"""Decode property text, as UTF-8 if it is valid UTF-8, otherwise as Latin-1.

    Example:
        >>> decode(b"name=br\xf6ker") == decode("name=bröker".encode())
        True
    """
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def write(pairs: Mapping[str, str]) -> str:
    r"""Write these pairs as property text, one per line, in their order.

    Example:
        >>> write({"brokerName": "broker-a"})
        'brokerName=broker-a\n'
    """
    return "".join(f"{_escape(key, key=True)}={_escape(value)}\n" for key, value in pairs.items())


def amended(text: str, pairs: Mapping[str, str]) -> str:
    r"""Change these pairs in property text; comments and the lines of other keys stay.

    A key replaces its last line; a new key is appended. Write the result as UTF-8: new lines are
    ASCII, and the others are unchanged.

    Example:
        >>> amended("# mine\nlistenPort = 1\n", {"listenPort": "2", "a": "b"})
        '# mine\nlistenPort=2\na=b\n'
    """
    left = dict(pairs)
    out: list[str] = []
    for lines in reversed(list(_spans(text))):
        found = next(iter(parse("\n".join(lines))), None)
        if found is None or found not in pairs:
            out.append("\n".join(lines))
        elif found in left:
            out.append(write({found: left.pop(found)}).rstrip("\n"))
    kept = "\n".join(reversed(out)).rstrip("\n")
    return (kept + "\n" if kept else "") + write({key: pairs[key] for key in pairs if key in left})


def key_lines(text: str) -> Iterator[tuple[int, str]]:
    r"""Return each key with the number of the line on which it begins.

    Raises:
        ConfigError: a `\u` escape is not followed by four hexadecimal digits.

    Example:
        >>> list(key_lines("# mine\na = 1\\\n  2\nb"))
        [(2, 'a'), (4, 'b')]
    """
    at = 1
    for lines in _spans(text):
        for key in parse("\n".join(lines)):
            yield at, key
        at += len(lines)


def _spans(text: str) -> Iterator[list[str]]:
    """The lines of a text, joined where a backslash continues them."""
    span: list[str] = []
    for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        is_comment = not span and line.lstrip(_BLANKS)[:1] in ("#", "!")
        span.append(line)
        if is_comment or (len(line) - len(line.rstrip("\\"))) % 2 == 0:
            yield span
            span = []
    if span:
        yield span


def _logical_lines(text: str) -> Iterator[str]:
    pending = ""
    continued = False
    for raw in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        line = raw.lstrip(_BLANKS)
        if not continued and (not line or line[0] in "#!"):
            continue
        body = line.rstrip("\\")
        if (len(line) - len(body)) % 2:
            pending += line[:-1]
            continued = True
            continue
        yield pending + line
        pending, continued = "", False
    if pending:
        yield pending


def _split(line: str) -> tuple[str, str]:
    at = 0
    while at < len(line) and line[at] not in "=:" and line[at] not in _BLANKS:
        at += 2 if line[at] == "\\" else 1
    key, rest = line[:at], line[at:].lstrip(_BLANKS)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANKS)
    return key, rest


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    out: list[str] = []
    at = 0
    while at < len(text):
        char = text[at]
        at += 1
        if char != "\\" or at >= len(text):
            out.append(char)
            continue
        char = text[at]
        at += 1
        if char != "u":
            out.append(_ESCAPES.get(char, char))
            continue
        digits = text[at : at + _UNICODE_DIGITS]
        at += _UNICODE_DIGITS
        if len(digits) < _UNICODE_DIGITS or not all(
            digit in "0123456789abcdefABCDEF" for digit in digits
        ):
            raise ConfigError(f"a `\\u` escape needs four hexadecimal digits: `\\u{digits}`")
        out.append(chr(int(digits, 16)))
    # Two escaped UTF-16 halves are one character: Java writes characters beyond 16 bits so.
    return "".join(out).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _escape(text: str, *, key: bool = False) -> str:
    out: list[str] = []
    for at, char in enumerate(text):
        if char in _ESCAPED:
            out.append(_ESCAPED[char])
        elif (char == " " and (key or at == 0)) or (char in "=:#!" and (key or at == 0)):
            out.append("\\" + char)
        elif " " <= char <= "~":
            out.append(char)
        else:
            units = char.encode("utf-16-be", "surrogatepass").hex()
            out.extend(f"\\u{units[i : i + 4]}" for i in range(0, len(units), _UNICODE_DIGITS))
    return "".join(out)
