"""The checks of requests: names that a browser may use for this page, the token, the page's policy.

A page of another site can make a browser send requests here. It cannot set our header without this
server's consent, which is never given, and a name that it points to this machine is not in `hosts`.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

TOKEN_HEADER = "x-pyrmq-token"  # noqa: S105 - a name, not a token
MAX_BODY_BYTES = 1 << 20

_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


@dataclass(frozen=True, slots=True)
class Permissions:
    """What a dashboard allows.

    Attributes:
        hosts: Names that the `Host` header may have, without port, in lower case.
        token: The token that a request needs to change something.
        may_write: Whether anything can be changed.
        reads_need_token: Whether a request also needs the token to read.
    """

    hosts: frozenset[str]
    token: str | None = None
    may_write: bool = False
    reads_need_token: bool = False


class Guard:
    """ASGI middleware that refuses what `Permissions` does not allow."""

    def __init__(self, app: ASGIApp, permissions: Permissions) -> None:
        self._app = app
        self._access = permissions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
                if scope["path"].startswith("/api/"):
                    headers["cache-control"] = "no-store"
            await send(message)

        refusal = self._refusal(scope)
        app: ASGIApp = self._app if refusal is None else refusal
        await app(scope, receive, with_headers)

    def _refusal(self, scope: Scope) -> JSONResponse | None:
        headers = Headers(scope=scope)
        host = host_of(headers.get("host", ""))
        if host not in self._access.hosts:
            return _refused(
                421,
                f"this dashboard does not answer for the host `{host}`. Fix: start it with "
                f"--allow-host {host or 'NAME'} if that is its name",
            )
        reads = scope["method"] in ("GET", "HEAD")
        if reads and not (self._access.reads_need_token and scope["path"].startswith("/api/")):
            return None
        if not reads and not self._access.may_write:
            return _refused(403, "this dashboard only reads. Fix: start it with --write")
        given = headers.get(TOKEN_HEADER, "")
        token = self._access.token or ""
        if not token or not hmac.compare_digest(given.encode(), token.encode()):
            return _refused(401, "the token is missing or wrong; the dashboard printed it at start")
        length = headers.get("content-length", "")
        if not reads and not (length.isdigit() and int(length) <= MAX_BODY_BYTES):
            return _refused(413, f"a request may have up to {MAX_BODY_BYTES} bytes")
        return None


def host_of(header: str) -> str:
    """The name in a `Host` header, without port, in lower case.

    Example:
        >>> host_of("LocalHost:8080"), host_of("[::1]:8080")
        ('localhost', '::1')
    """
    text = header.strip().lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0]


def _refused(status: int, text: str) -> JSONResponse:
    return JSONResponse({"error": text}, status_code=status)
