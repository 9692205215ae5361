"""Lists of revoked certificates, as health shows them."""

from __future__ import annotations

from time import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyrmq import _core


def revoked_certificates(security: _core.ServerSecurity | None) -> dict[str, Any]:
    """Return the part of a server's health about revocation lists.

    It is empty without `tls.server.crlPath`. Otherwise `revoked_certificates` has `next_update_ms`,
    when the authority publishes the next list, in ms since 1970, and `out_of_date`: whether that
    time has passed, so that certificates revoked since are trusted.

    Example:
        >>> revoked_certificates(None)
        {}
    """
    next_ms = None if security is None else security.next_update_ms()
    if next_ms is None:
        return {}
    lists = {"next_update_ms": next_ms, "out_of_date": next_ms < time() * 1000}
    return {"revoked_certificates": lists}
