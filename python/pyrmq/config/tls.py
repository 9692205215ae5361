"""Options of TLS, which both servers have (Apache `TlsSystemConfig`)."""

from __future__ import annotations

from pyrmq.config.option import Options, option


class TlsOptions(Options):
    """Options of TLS. Their keys are Apache's system properties.

    Passwords of keys are in the file of `tls.config.file` alone: the options of a server are shown
    by requests and by `--print-config`.
    """

    tls_server_mode: str = option(
        default="disabled",
        text="connections that it takes: `disabled` plain ones, `permissive` both kinds, "
        "`enforcing` TLS alone",
        apache="tls.server.mode",
        choices=("disabled", "permissive", "enforcing"),
    )
    tls_test_mode_enable: bool = option(
        default=False,
        text="it makes a certificate of its own at the start, which no authority signed; for tests",
        apache="tls.test.mode.enable",
    )
    tls_server_cert_path: str | None = option(
        default=None,
        text="file of its certificate and those that lead to its authority (PEM); read again when "
        "it changes, as all files of TLS",
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
        text="whether clients' certificates are checked; the two other values of "
        "`tls.server.need.client.auth` need it",
        apache="tls.server.authClient",
    )
    tls_server_trust_cert_path: str | None = option(
        default=None,
        text="file of the authorities that sign clients' certificates (PEM)",
        apache="tls.server.trustCertPath",
    )
    tls_server_crl_path: str | None = option(
        default=None,
        text="file of the lists of clients' certificates that were revoked (PEM); with it, each "
        "client's authority must have a list there (pyrmq only)",
        apache="tls.server.crlPath",
    )
    tls_metrics_enable: bool = option(
        default=False,
        text="whether the port of `metricsPort` speaks HTTPS, with the certificate of "
        "`tls.server.certPath`, and asks for clients' certificates as the others do (pyrmq only)",
        apache="tls.metrics.enable",
    )
    use_tls: str | None = option(
        default=None,
        text="whether its own requests, to name servers or brokers, go through TLS; default: true "
        "if `tls.server.mode` is `enforcing`",
        apache="useTLS",
        choices=("true", "false"),
    )
    tls_client_auth_server: bool = option(
        default=True,
        text="whether its own requests check the certificates of servers",
        apache="tls.client.authServer",
    )
    tls_client_trust_cert_path: str | None = option(
        default=None,
        text="file of the authorities that its own requests trust (PEM); default: the system's",
        apache="tls.client.trustCertPath",
    )
    tls_client_crl_path: str | None = option(
        default=None,
        text="file of the lists of servers' certificates that were revoked, for its own requests "
        "(PEM; pyrmq only)",
        apache="tls.client.crlPath",
    )
    tls_client_cert_path: str | None = option(
        default=None,
        text="file of the certificate that its own requests show (PEM)",
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
