"""TLS of a server, from its options and the file of `tls.config.file`."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from pyrmq import _core
from pyrmq._client.security.secrets import check_private, nearest_keys, warn_of_readers
from pyrmq.errors import ConfigError

if TYPE_CHECKING:
    import ssl
    from collections.abc import Collection

    from pyrmq.config.tls import TlsOptions

PASSWORDS = ("tls.server.keyPassword", "tls.client.keyPassword")
"""Keys that only the file of `tls.config.file` may have: other options are shown."""


class ServerTls(NamedTuple):
    """How a server accepts connections, and how it opens those for its own requests.

    Attributes:
        server: None: only plain TCP.
        client: None: plain TCP.
    """

    server: _core.ServerTls | None
    client: _core.ClientTls | None


def server_tls(options: Any) -> ServerTls:  # noqa: ANN401 - of either server
    """Read certificates and keys.

    Raises:
        ConfigError: A file cannot be used, or the options contradict each other.

    Example:
        >>> from pyrmq.config import NameServerOptions
        >>> server_tls(NameServerOptions())
        ServerTls(server=None, client=None)
    """
    options, passwords = _with_file(options)
    uses_tls = options.use_tls
    if uses_tls is None:
        uses_tls = "true" if options.tls_server_mode == "enforcing" else "false"
    return ServerTls(
        _server(options, passwords) if options.tls_server_mode != "disabled" else None,
        _client(options, passwords) if uses_tls == "true" else None,
    )


def metrics_tls(options: Any) -> MetricsTls | None:  # noqa: ANN401 - of either server
    """TLS of the metrics port; None: it speaks plain HTTP.

    Raises:
        ConfigError: A file is missing or cannot be used.

    Example:
        >>> from pyrmq.config import NameServerOptions
        >>> metrics_tls(NameServerOptions())
    """
    shown, _ = _with_file(options)
    return MetricsTls(options) if shown.tls_metrics_enable else None


class MetricsTls:
    """TLS of the metrics port: Python's own, with the files of the server's TLS.

    Files are read again when they change. An unusable file is logged, and the old one stays in
    force; each connection tries again, since a file that becomes readable looks unchanged.

    Args:
        options: The server's options.

    Raises:
        ConfigError: A file is missing or cannot be used.

    Example:
        >>> MetricsTls(broker.options).context()  # doctest: +SKIP
    """

    def __init__(self, options: Any) -> None:  # noqa: ANN401 - of either server
        options, passwords = _with_file(options)
        certificate, key = options.tls_server_cert_path, options.tls_server_key_path
        if certificate is None or key is None:
            raise ConfigError(
                "`tls.metrics.enable` is set, but the server has no certificate: set "
                "`tls.server.certPath` and `tls.server.keyPath`"
            )
        needs = options.tls_server_need_client_auth
        trust = options.tls_server_trust_cert_path if needs != "none" else None
        crl = options.tls_server_crl_path if needs != "none" else None
        self.files = tuple(_expanded(path) for path in (certificate, key, trust, crl))
        self._password = passwords.get("tls.server.keyPassword")
        self._requires_client = needs == "require"
        # OpenSSL would refuse every client once a list is past its next update.
        self._check: _core.ClientCheck | None = None
        if trust is not None and crl is not None:
            self._check = _core.ClientCheck(
                trust=_expanded(trust) or "", revoked=_expanded(crl) or ""
            )
        # Read by one thread, the one that accepts connections.
        self._versions, self._context = self._current_versions(), self._read()
        self._refused: object = None  # The last logged error, to log it only once.

    def context(self) -> ssl.SSLContext:
        """Return the TLS for the next connection."""
        versions = self._current_versions()
        if versions != self._versions:
            try:
                self._context = self._read()
            except ConfigError as error:
                self._refuse(versions, error)
            else:
                self._versions = versions
        return self._context

    def refusal(self, connection: ssl.SSLSocket) -> str | None:
        """Why a client is refused after its handshake, by the rules of the other ports."""
        chain = None if self._check is None else _shown(connection)
        return None if self._check is None or not chain else self._check.refusal(chain)

    def _refuse(self, versions: object, error: ConfigError) -> None:
        if (versions, str(error)) == self._refused:
            return
        self._refused = versions, str(error)
        from pyrmq._client import log

        log.get("pyrmq.tls").error(
            "the certificate of the metrics port from before stays in force: %s", error
        )

    def _current_versions(self) -> tuple[tuple[int, int] | None, ...]:
        return tuple(_version(path) for path in self.files)

    def _read(self) -> ssl.SSLContext:
        import ssl

        certificate, key, trust, _ = self.files
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            # Without a password OpenSSL would ask for one at the terminal.
            context.load_cert_chain(certificate or "", key, self._password or "")
            if trust is not None:
                context.load_verify_locations(trust)
                context.verify_mode = (
                    ssl.CERT_REQUIRED if self._requires_client else ssl.CERT_OPTIONAL
                )
            if self._check is not None:
                # A resumed session would not present the client's certificates again.
                context.options |= ssl.OP_NO_TICKET
                context.num_tickets = 0
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"the metrics port cannot use `{certificate}` and `{key}`: {error}"
            ) from error
        return context


def _shown(connection: ssl.SSLSocket) -> list[bytes]:
    """The certificates of a client, its own first, in DER form; empty if it presented none."""
    import ssl

    if sys.version_info >= (3, 13):
        return connection.get_unverified_chain()
    own: Any = connection
    shown = own._sslobj.get_unverified_chain() or ()
    return [ssl.PEM_cert_to_DER_cert(one.public_bytes()) for one in shown]


def _version(path: str | None) -> tuple[int, int] | None:
    try:
        found = None if path is None else os.stat(path)  # noqa: PTH116 - see _expanded
    except OSError:
        return None
    return None if found is None else (found.st_mtime_ns, found.st_ino)


def _server(options: TlsOptions, passwords: dict[str, str]) -> _core.ServerTls:
    certificate, key = options.tls_server_cert_path, options.tls_server_key_path
    mode = f"`tls.server.mode` is `{options.tls_server_mode}`"
    if options.tls_test_mode_enable:
        if certificate is not None or key is not None:
            raise ConfigError(
                "`tls.test.mode.enable` makes a certificate for tests, and `tls.server.certPath` "
                "or `tls.server.keyPath` names one: remove one of them"
            )
    elif certificate is None or key is None:
        raise ConfigError(
            f"{mode}, but the server has no certificate: set `tls.server.certPath` and "
            "`tls.server.keyPath`"
        )
    needs = options.tls_server_need_client_auth
    if (needs != "none") != options.tls_server_auth_client:
        raise ConfigError(
            f"`tls.server.need.client.auth` is `{needs}` and `tls.server.authClient` is "
            f"{str(options.tls_server_auth_client).lower()}: a certificate that is not requested, "
            "or not verified, protects nothing; set both or none"
        )
    if needs == "require" and options.tls_server_mode == "permissive":
        raise ConfigError(
            "`tls.server.need.client.auth` is `require` and `tls.server.mode` is `permissive`: a "
            "client without TLS, and so without a certificate, would be served; set `enforcing`"
        )
    trust = options.tls_server_trust_cert_path if needs != "none" else None
    if needs != "none" and trust is None:
        raise ConfigError(
            "`tls.server.authClient` is set without `tls.server.trustCertPath`: name the file of "
            "the authorities that sign clients' certificates"
        )
    if options.tls_server_crl_path is not None and needs == "none":
        raise ConfigError(
            "`tls.server.crlPath` is set, but clients' certificates are not requested: set "
            "`tls.server.need.client.auth`, or remove it"
        )
    warn_of_readers(_expanded(key))
    return _core.ServerTls(
        serves_plain=options.tls_server_mode == "permissive",
        certificate=_expanded(certificate),
        key=_expanded(key),
        key_password=passwords.get("tls.server.keyPassword"),
        trust=_expanded(trust),
        requires_client=needs == "require",
        revoked=_expanded(options.tls_server_crl_path),
    )


def _client(options: TlsOptions, passwords: dict[str, str]) -> _core.ClientTls:
    from pyrmq._client.security.tls import Tls, native_tls

    verify = options.tls_client_auth_server
    made = native_tls(
        Tls(
            trust=options.tls_client_trust_cert_path if verify else None,
            cert=options.tls_client_cert_path,
            key=options.tls_client_key_path,
            key_password=passwords.get("tls.client.keyPassword"),
            verify=verify,
            crl=options.tls_client_crl_path if verify else None,
        )
    )
    assert made is not None
    return made


def _with_file(options: Any) -> tuple[Any, dict[str, str]]:  # noqa: ANN401 - as above
    """Return the options with the file's values over them, and the passwords."""
    if options.tls_config_file is None:
        return options, {}
    from pyrmq.config.tls import TLS_KEYS
    from pyrmq.server.options.properties import parse, read_text

    path = _expanded(options.tls_config_file) or ""
    text = read_text(path)
    pairs = parse(text)
    passwords = {key: pairs.pop(key) for key in PASSWORDS if key in pairs}
    if passwords:
        check_private("the passwords in", path, os.stat(path).st_mode)  # noqa: PTH116 - see _expanded
    known = (*TLS_KEYS, *PASSWORDS)
    unknown = [key for key in pairs if key not in {*known, "tls.enable"}]
    if unknown:
        # The key itself may be a password that somebody put on a separate line.
        raise ConfigError(
            f"`{path}` has an unknown key in {_lines_of(text, unknown)}: it may have "
            f"{', '.join(known)}{nearest_keys(unknown, known)}"
        )
    if "tls.enable" in pairs:
        pairs["useTLS"] = pairs.pop("tls.enable")
    shown = {**options.to_properties(), **pairs}
    return type(options).from_properties(shown), {
        key: text for key, text in passwords.items() if text
    }


def _lines_of(text: str, keys: Collection[str]) -> str:
    """The lines of keys in property text, for an error."""
    from pyrmq.server.options.properties import key_lines

    numbers = sorted({at for at, key in key_lines(text) if key in keys})
    return f"line{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"


def _expanded(path: str | None) -> str | None:
    return None if path is None else os.path.expanduser(path)  # noqa: PTH111 - pathlib's import costs more than the start
