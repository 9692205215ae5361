"""Options of TLS, which both servers have (Apache `TlsSystemConfig`)."""

from __future__ import annotations

from pyrmq.config.option import Options, option


class TlsOptions(Options):
    """Options of TLS. Their keys are Apache's system properties.

    Passwords of keys are only in the file of `tls.config.file`, since requests and `--print-config`
    show the options of a server.
    """

    tls_server_mode: str = option(
        default="disabled",
        text="accepted connections: `disabled` plain ones, `permissive` both kinds, "
        "`enforcing` TLS only",
        apache="tls.server.mode",
        choices=("disabled", "permissive", "enforcing"),
    )
    tls_test_mode_enable: bool = option(
        default=False,
        text="create a self-signed certificate at start; for tests",
        apache="tls.test.mode.enable",
    )
    tls_server_cert_path: str | None = option(
        default=None,
        text="file of the certificate and its chain (PEM); read again when it changes, as are all "
        "files of TLS",
        apache="tls.server.certPath",
    )
    tls_server_key_path: str | None = option(
        default=None,
        text="file of the certificate's private key (PEM)",
        apache="tls.server.keyPath",
    )
    tls_server_need_client_auth: str = option(
        default="none",
        text="whether clients need a certificate",
        apache="tls.server.need.client.auth",
        choices=("none", "optional", "require"),
    )
    tls_server_auth_client: bool = option(
        default=False,
        text="whether clients' certificates are verified; required by the two other values of "
        "`tls.server.need.client.auth`",
        apache="tls.server.authClient",
    )
    tls_server_trust_cert_path: str | None = option(
        default=None,
        text="file of the authorities that sign clients' certificates (PEM)",
        apache="tls.server.trustCertPath",
    )
    tls_server_crl_path: str | None = option(
        default=None,
        text="file of revocation lists for clients' certificates (PEM); if set, each client's "
        "authority must have a list there (pyrmq only)",
        apache="tls.server.crlPath",
    )
    tls_metrics_enable: bool = option(
        default=False,
        text="whether the port of `metricsPort` speaks HTTPS, with the certificate of "
        "`tls.server.certPath`, and requests clients' certificates as the others do (pyrmq only)",
        apache="tls.metrics.enable",
    )
    use_tls: str | None = option(
        default=None,
        text="whether this server's own requests, to name servers or brokers, use TLS; default: "
        "true if `tls.server.mode` is `enforcing`",
        apache="useTLS",
        choices=("true", "false"),
    )
    tls_client_auth_server: bool = option(
        default=True,
        text="whether this server's own requests verify the certificates of servers",
        apache="tls.client.authServer",
    )
    tls_client_trust_cert_path: str | None = option(
        default=None,
        text="file of the authorities that this server's own requests trust (PEM); default: the "
        "system's",
        apache="tls.client.trustCertPath",
    )
    tls_client_crl_path: str | None = option(
        default=None,
        text="file of revocation lists for servers' certificates, for this server's own requests "
        "(PEM; pyrmq only)",
        apache="tls.client.crlPath",
    )
    tls_client_cert_path: str | None = option(
        default=None,
        text="file of the client certificate for this server's own requests (PEM)",
        apache="tls.client.certPath",
    )
    tls_client_key_path: str | None = option(
        default=None,
        text="file of that certificate's private key (PEM)",
        apache="tls.client.keyPath",
    )
    tls_config_file: str | None = option(
        default=None,
        text="property file whose `tls.` keys override these options, and which alone may have "
        "`tls.server.keyPassword` and `tls.client.keyPassword` (mode 0600 then)",
        apache="tls.config.file",
    )


TLS_KEYS = tuple(item.apache for item in TlsOptions.fields)
"""Apache's names of these options."""
