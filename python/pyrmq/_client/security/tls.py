"""TLS of a client's connections, and the servers that it trusts."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Self, final

from pyrmq import _core
from pyrmq._client import log
from pyrmq._client.security.secrets import nearest_keys, warn_of_readers
from pyrmq.errors import ConfigError

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

__all__ = ["PYRMQ_TLS", "PYRMQ_TLS_KEY_PASSWORD", "Tls", "check_one_password", "native_tls"]

PYRMQ_TLS = "PYRMQ_TLS"
"""Environment variable that turns TLS on, for clients without the option."""
PYRMQ_TLS_KEY_PASSWORD = "PYRMQ_TLS_KEY_PASSWORD"  # noqa: S105 - a name, no password
"""Environment variable with the password of the client's encrypted key."""

_VARIABLES = {
    "trust": "PYRMQ_TLS_CA",
    "cert": "PYRMQ_TLS_CERT",
    "key": "PYRMQ_TLS_KEY",
    "key_password": PYRMQ_TLS_KEY_PASSWORD,
    "server_name": "PYRMQ_TLS_SERVER_NAME",
    "verify": "PYRMQ_TLS_VERIFY",
    "crl": "PYRMQ_TLS_CRL",
}
_FILE_KEYS = {
    "trust": "trust",
    "cert": "cert",
    "key": "key",
    "keyPassword": "key_password",
    "serverName": "server_name",
    "verify": "verify",
    "crl": "crl",
}
_PATHS = ("trust", "cert", "key", "crl")
_MAX_SHARED = 64


@final
class Tls:
    """TLS of a client's connections to name servers and brokers.

    A connection that cannot be secured fails; it never falls back to plain TCP. The files are read
    again when they change, for new connections. Files are in PEM form.

    Args:
        trust: File of the authorities whose certificates are trusted. Default: the system's.
        cert: File of the client's own certificate, for servers that request one.
        key: File of its private key.
        key_password: Password of an encrypted PKCS#8 key.
        server_name: The name that each server's certificate must have. Default: the host of the
            server's address.
        verify: Verify the servers' certificates. False: the traffic is encrypted, but anybody may
            be at the other end; a warning is logged.
        crl: File of revocation lists for servers' certificates. If given, the authority of each
            server must have a list there; the expiry of lists is not checked.

    Raises:
        ConfigError: The arguments do not fit together.

    Example:
        >>> Tls(trust="/etc/ca.pem", server_name="rocketmq.example")
        Tls(trust='/etc/ca.pem', server_name='rocketmq.example')
    """

    __slots__ = ("_values",)

    def __init__(
        self,
        trust: str | os.PathLike[str] | None = None,
        *,
        cert: str | os.PathLike[str] | None = None,
        key: str | os.PathLike[str] | None = None,
        key_password: str | None = None,
        server_name: str | None = None,
        verify: bool = True,
        crl: str | os.PathLike[str] | None = None,
    ) -> None:
        if not isinstance(verify, bool):
            raise ConfigError(f"option `verify` of TLS is {verify!r}: it must be true or false")
        if (cert is None) != (key is None):
            raise ConfigError("options `cert` and `key` of TLS belong together: give both or none")
        if key_password is not None and key is None:
            raise ConfigError("option `key_password` of TLS is given without `key`")
        for name, given in (("trust", trust), ("crl", crl)):
            if not verify and given is not None:
                raise ConfigError(
                    f"option `{name}` of TLS has no effect with `verify=False`: leave one of them "
                    "out"
                )
        texts = {name: _text(name, value) for name, value in _files(trust, cert, key, crl)}
        self._values: dict[str, Any] = {
            **texts,
            "key_password": _text("key_password", key_password),
            "server_name": _text("server_name", server_name),
            "verify": verify,
        }

    @classmethod
    def from_environment(cls) -> Self | None:
        """Read the environment variables; None if they do not request TLS.

        ``PYRMQ_TLS=true`` does, and so does ``PYRMQ_TLS_CA``, which names the file of trusted
        authorities. ``PYRMQ_TLS_CERT``, ``PYRMQ_TLS_KEY``, ``PYRMQ_TLS_KEY_PASSWORD``,
        ``PYRMQ_TLS_SERVER_NAME``, ``PYRMQ_TLS_VERIFY`` and ``PYRMQ_TLS_CRL`` are the other
        arguments.

        Raises:
            ConfigError: A value is wrong, or the arguments do not fit together.

        Example:
            >>> Tls.from_environment()  # doctest: +SKIP
        """
        switch = os.environ.get(PYRMQ_TLS, "")
        if switch and not _switch(PYRMQ_TLS, switch):
            return None
        found = {name: os.environ.get(variable, "") for name, variable in _VARIABLES.items()}
        given: dict[str, Any] = {name: text for name, text in found.items() if text}
        if "verify" in given:
            given["verify"] = _switch(_VARIABLES["verify"], given["verify"])
        if not switch and "trust" not in given:
            idle = sorted(_VARIABLES[name] for name, value in given.items() if value is not True)
            if idle:
                raise ConfigError(
                    f"{', '.join(idle)} have no effect without TLS: set {PYRMQ_TLS}=true (--tls) "
                    f"or {_VARIABLES['trust']} (--tls-ca), or remove them"
                )
            return None
        return cls(**given)

    @classmethod
    def from_mapping(cls, given: Mapping[str, object], folder: str, where: str) -> Self:
        """Read the object `tls` of a credentials file.

        Args:
            given: `trust`, `cert`, `key`, `keyPassword`, `serverName`, `verify` and `crl`.
            folder: The start of relative paths.
            where: The file, for error texts.

        Raises:
            ConfigError: A key is unknown, or the arguments do not fit together.

        Example:
            >>> Tls.from_mapping({"trust": "ca.pem"}, "/etc/pyrmq", "admin.toml")
            Tls(trust='/etc/pyrmq/ca.pem')
        """
        unknown = sorted(given.keys() - _FILE_KEYS.keys())
        if unknown:
            raise ConfigError(
                f"`tls` in `{where}` has the unknown keys {', '.join(unknown)}: "
                f"it may have {', '.join(_FILE_KEYS)}{nearest_keys(unknown, _FILE_KEYS)}"
            )
        values: dict[str, Any] = {_FILE_KEYS[key]: value for key, value in given.items()}
        for name in _PATHS:
            if isinstance(values.get(name), str):
                values[name] = os.path.join(folder, values[name])  # noqa: PTH118 - as cheap as can be
        return cls(**values)

    def context(self) -> ssl.SSLContext:
        """Return a context for Python's own sockets, which only `pyrmq doctor` uses.

        Raises:
            OSError: A file cannot be used.
        """
        import ssl

        context = ssl.create_default_context(cafile=self._values["trust"])
        if not self._values["verify"]:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if self._values["cert"] is not None:
            password = self._values["key_password"]
            context.load_cert_chain(self._values["cert"], self._values["key"], password)
        return context

    @property
    def server_name(self) -> str | None:
        """The name that each server's certificate must have; None: the host of its address."""
        name: str | None = self._values["server_name"]
        return name

    def __repr__(self) -> str:
        """Show what is set, never the password."""
        shown = [
            f"{name}={value!r}"
            for name, value in self._values.items()
            if value is not None and name not in {"key_password", "verify"}
        ]
        if not self._values["verify"]:
            shown.append("verify=False")
        return f"Tls({', '.join(shown)})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tls) and self._values == other._values

    def __hash__(self) -> int:
        return hash(tuple(self._values.values()))

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the arguments, but no password."""
        if self._values["key_password"] is not None:
            raise TypeError(
                "TLS with a `key_password` cannot be pickled or copied: the copy would expose the "
                "password; create it where it is used"
            )
        return _made, (self._values,)

    def _native(self) -> _core.ClientTls:
        values = dict(self._values)
        if not values["verify"]:
            log.get("pyrmq.tls").warning(
                "TLS without verify: certificates are not checked, so anybody may be at the other "
                "end of a connection"
            )
        warn_of_readers(values["key"])
        return _core.ClientTls(certificate=values.pop("cert"), revoked=values.pop("crl"), **values)


def _files(*paths: object) -> zip[tuple[str, object]]:
    return zip(_PATHS, paths, strict=True)


def _text(name: str, value: object) -> str | None:
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if value is None:
        return None
    if not isinstance(value, str) or not value:
        raise ConfigError(f"option `{name}` of TLS is empty or not a string")
    # Absolute, so that a later change of the working directory does not change what it names.
    return os.path.abspath(os.path.expanduser(value)) if name in _PATHS else value  # noqa: PTH100, PTH111 - as cheap as can be


def _made(values: dict[str, Any]) -> Tls:
    return Tls(**values)


def _switch(name: str, text: str) -> bool:
    known = {"1": True, "true": True, "0": False, "false": False}
    if text.lower() not in known:
        raise ConfigError(f"`{name}` is {text!r}: it must be true or false")
    return known[text.lower()]


def check_one_password(of_file: Tls, file: str | None) -> None:
    """Check that not both the environment and a credentials file have the password of the key.

    Args:
        of_file: The TLS of a credentials file.
        file: The file, for the error text.

    Raises:
        ConfigError: Both have it.
    """
    if of_file._values["key_password"] and os.environ.get(PYRMQ_TLS_KEY_PASSWORD):
        raise ConfigError(
            "the password of the client's key is given twice: in the environment variable "
            f"{PYRMQ_TLS_KEY_PASSWORD} and as `keyPassword` of `tls` in `{file}`: remove one of "
            "them, or give this client the option `tls`"
        )


_shared: dict[Tls, _core.ClientTls] = {}
# An inner lock may have been held at the fork, and would stay held in the child.
os.register_at_fork(after_in_child=_shared.clear)


def native_tls(given: Tls | None) -> _core.ClientTls | None:
    """Return the TLS for native clients. Clients with equal options share connections.

    Raises:
        ConfigError: The option is of another type, or a file cannot be used.
    """
    if given is None:
        return None
    if not isinstance(given, Tls):
        raise ConfigError(f"option `tls` is of type {type(given).__name__}, it must be `pyrmq.Tls`")
    found = _shared.get(given)
    if found is None:
        if len(_shared) >= _MAX_SHARED:
            _shared.clear()
        found = _shared[given] = given._native()
    return found
