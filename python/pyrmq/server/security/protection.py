"""The security options of a server, as the core needs them, and the warning of an open server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyrmq import _core
from pyrmq.errors import ConfigError

if TYPE_CHECKING:
    from pyrmq.server.security.plain_acl import AclFiles
    from pyrmq.server.security.users import UserFile

__all__ = ["native_protection", "protection", "warn_if_open"]


def protection(
    role: str,
    options: Any,  # noqa: ANN401 - of either server
    cluster: str,
) -> tuple[UserFile | None, AclFiles | None, _core.ServerSecurity]:
    """Return the files of users and policies, and a server's protection of its requests.

    Raises:
        ConfigError: A file cannot be used, or the options contradict each other.
    """
    # Unused parts are not imported: all of them would take a sixth of a start.
    acl = users = credentials = server_tls = client_tls = None
    # A name server has no accounts of 4.x.
    if getattr(options, "acl_enable", False):
        from pyrmq.server.security.plain_acl import acl_files

        acl = acl_files(options)
    if options.authentication_enabled or options.authorization_enabled:
        from pyrmq.server.security.users import user_file

        users = user_file(options, cluster)
    if getattr(options, "inner_client_credentials_path", None) is not None:
        from pyrmq.server.security.users import own_credentials

        credentials = own_credentials(options)
    if options.tls_server_mode != "disabled" or options.use_tls or options.tls_config_file:
        from pyrmq.server.security import tls

        server_tls, client_tls = tls.server_tls(options)
    warn_if_open(role, options)
    native = _core.ServerSecurity(
        cluster=cluster,
        guard=None if users is None else users.guard,
        plain=None if acl is None else acl.guard,
        credentials=credentials,
        server_tls=server_tls,
        client_tls=client_tls,
        **native_protection(options),
    )
    return users, acl, native


def native_protection(options: Any) -> dict[str, Any]:  # noqa: ANN401 - of either server
    """Return keywords of `_core.ServerSecurity`.

    Raises:
        ConfigError: An option is wrong, or two contradict each other.

    Example:
        >>> from pyrmq.config import NameServerOptions
        >>> native_protection(NameServerOptions(proxy_protocol_sources="10.0.0.7; 10.1.0.0/16"))
        {'proxy_sources': ['10.0.0.7', '10.1.0.0/16'], 'limits': (0, 0, 0, 0, 0, 0), 'admin': None}
    """
    checks_users = options.authentication_enabled
    if not checks_users and (options.max_requests_per_user or options.max_bytes_per_user):
        raise ConfigError(
            "`maxRequestsPerUser` or `maxBytesPerUser` is set without `authenticationEnabled`: "
            "anybody could claim to be any user; limit addresses, or check users"
        )
    port = options.admin_listen_port
    return {
        "proxy_sources": _networks("proxyProtocolSources", options.proxy_protocol_sources),
        "limits": (
            options.max_connections_per_address,
            options.max_requests_per_address,
            options.max_bytes_per_address,
            options.max_requests_per_user,
            options.max_bytes_per_user,
            options.failed_login_max_delay if checks_users else 0,
        ),
        "admin": (options.admin_bind_address, port) if port else None,
    }


def _networks(key: str, text: str) -> list[str]:
    """Split a list of networks, and check each: an error names the option."""
    networks = [part.strip() for part in text.split(";") if part.strip()]
    if not networks:
        return []
    from ipaddress import ip_interface

    for network in networks:
        try:
            ip_interface(network)
        except ValueError as error:
            raise ConfigError(
                f"`{key}` names {network!r}: it must be an address such as `10.0.0.7` or a "
                "network such as `10.1.0.0/16`; `;` separates them"
            ) from error
    return networks


def warn_if_open(role: str, options: Any) -> None:  # noqa: ANN401 - of either server
    """Warn if everybody who reaches a server from another machine may do everything.

    TLS alone does not close a server: it authenticates the server, unless clients need a
    certificate.

    Args:
        role: The server's role.
        options: Its options.

    Example:
        >>> from pyrmq.config import NameServerOptions
        >>> warn_if_open("name server", NameServerOptions(bind_address="::1"))
    """
    addresses = [options.bind_address or ""]
    if options.admin_listen_port:
        addresses.append(options.admin_bind_address)
    address = next((one for one in addresses if not _is_loopback(one)), None)
    needs_certificate = (
        options.tls_server_mode == "enforcing" and options.tls_server_need_client_auth == "require"
    )
    has_users = options.authentication_enabled or getattr(options, "acl_enable", False)
    if address is None or has_users or needs_certificate:
        return
    from pyrmq._client import log

    log.get(f"pyrmq.{role.replace(' ', '')}").warning(
        "this %s listens on %s, which other machines may reach, and checks no users: all of "
        "them may do everything. Set authenticationEnabled and authorizationEnabled (`pyrmq "
        "secure init` makes the files, docs/security.md), or bindAddress=127.0.0.1",
        role,
        address or "every address",
    )


def _is_loopback(address: str) -> bool:
    return address.startswith("127.") or address in {"::1", "localhost"}
