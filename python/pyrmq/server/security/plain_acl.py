"""The accounts of a broker with access control lists of 4.x: their files, and changes of them.

As in Apache's broker, there is one main file, `conf/plain_acl.yml` under the home directory, and
every `.yml` and `.yaml` file in `conf/acl` and its subfolders.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pyrmq import _core
from pyrmq.errors import ConfigError
from pyrmq.server.security.watched import (
    Version,
    Watched,
    changing_alone,
    read_private,
    version,
    write_private,
)

if TYPE_CHECKING:
    from pyrmq.config import BrokerOptions

MAIN_FILE = "conf/plain_acl.yml"
HOME_VARIABLE = "ROCKETMQ_HOME"
_FOLDER = "conf/acl"
_SUFFIXES = (".yml", ".yaml")


def acl_files(options: BrokerOptions) -> AclFiles | None:
    """Read the accounts of a broker's options; None if it has none.

    Raises:
        ConfigError: A file is missing or wrong, or the options contradict each other.
    """
    if not options.acl_enable:
        return None
    if options.authentication_enabled:
        raise ConfigError(
            "`aclEnable` and `authenticationEnabled` are both set: requests are checked against "
            "the accounts of 4.x or the users of 5.x, not both; unset one of them"
        )
    home = options.rocketmq_home or os.environ.get(HOME_VARIABLE)
    if not home:
        raise ConfigError(
            f"`aclEnable` needs `rocketmqHome`, or the environment variable {HOME_VARIABLE}: the "
            f"directory that has {MAIN_FILE} and {_FOLDER}"
        )
    home = os.path.abspath(os.path.expanduser(home))  # noqa: PTH100, PTH111 - see pyrmq.server.files
    return AclFiles(os.path.join(home, options.acl_plain_file), os.path.join(home, _FOLDER))  # noqa: PTH118


class AclFiles(Watched):
    """The files of accounts, and the version that is in force.

    Args:
        main: The file that gets new accounts; it may be missing if the folder has one.
        folder: Its files and those of its subfolders are also read.

    Raises:
        ConfigError: There is no file, or one is wrong.

    Example:
        >>> AclFiles("conf/plain_acl.yml", "conf/acl")  # doctest: +SKIP
    """

    def __init__(self, main: str, folder: str) -> None:
        super().__init__("accounts")
        self.main, self.folder = main, folder
        self._files, self._seen = self._read()
        if not self._files:
            raise ConfigError(
                f"`aclEnable` is set, but there is neither `{main}` nor a file in `{folder}`"
            )
        self.guard = _core.PlainGuard(self._files)
        self._warn_of_unknown()

    def _paths(self) -> list[str]:
        """The existing files: those of the folder by name, then the main one."""
        found = []
        for place, folders, names in os.walk(self.folder):
            # A mounted volume has its files again in folders that begin with a dot.
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            paths = [os.path.join(place, name) for name in sorted(names)]  # noqa: PTH118 - as above
            found += [path for path in paths if path.endswith(_SUFFIXES)]
        if self.main not in found and os.path.exists(self.main):  # noqa: PTH110 - as above
            found.append(self.main)
        return found

    def _read(self) -> tuple[list[tuple[str, bytes]], dict[str, Version]]:
        contents = {path: read_private("secrets", path) for path in self._paths()}
        files = [(path, text) for path, (text, _) in contents.items()]
        return files, {path: seen for path, (_, seen) in contents.items()}

    def reload(self) -> str | None:
        """Read the files if one was changed, added or deleted."""
        if {path: version(path) for path in self._paths()} == self._seen:
            return None
        files, seen = self._read()
        self.guard.replace(files)
        self._files, self._seen = files, seen
        self._warn_of_unknown()
        return f"{self.guard.users} accounts in {len(files)} files"

    def change(self, code: int, fields: dict[str, str]) -> None:
        """Apply a request (50, 51, 53): first on disk, then in force.

        Raises:
            ConfigError: The request or a file is wrong; nothing has changed.
            OSError: The file cannot be written; nothing has changed.
        """
        from pyrmq._client import log

        # There may be no main file yet.
        os.makedirs(os.path.dirname(self.main), exist_ok=True)  # noqa: PTH103, PTH120 - as above
        with self.changing, changing_alone(self.main):
            self.reload()
            path, text = _core.PlainGuard.changed(self._files, self.main, code, fields)
            write_private(path, text)
            self.reload()
        log.get("pyrmq.audit").info(
            "accounts changed: request %d for %r by %r, in %s",
            code,
            fields.get("accessKey") or fields.get("globalWhiteAddrs", ""),
            fields.get("AccessKey", ""),
            path,
        )

    def _warn_of_unknown(self) -> None:
        from pyrmq._client import log

        if self.guard.unknown:
            log.get("pyrmq.config").warning(
                "keys without effect in files of accounts: %s", ", ".join(self.guard.unknown)
            )
