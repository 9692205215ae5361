"""docs/options.md from the options that both servers declare in `pyrmq.config`.

Run it by `make docs`; a test fails when the page is not what this writes.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyrmq.config import BrokerOptions, NameServerOptions, Options
from pyrmq.config.option import LONG_MAX, as_text

PAGE = Path(__file__).resolve().parents[1] / "docs" / "options.md"

_HEAD = """\
# Options of the servers

Written by `tools/gen_options.py` from `python/pyrmq/config`; do not edit.

In a property file (`pyrmq broker -c broker.conf`) by their key, which is Apache's; in Python by
their name (`Broker(broker_name="broker-a")`); on the command line as `--broker-name broker-a`; for
the commands also in the environment, as `PYRMQ_NAMESERVER_LISTEN_PORT` or
`PYRMQ_BROKER_BROKER_NAME`. The command line wins over the environment, that over the file. A wrong
value is an error that names key, value and range. Keys without effect are named in a warning.
`live`: it changes while the server runs, by request codes 25 (broker, `mqadmin updateBrokerConfig`)
and 318 (name server, `mqadmin updateNamesrvConfig`), by `reconfigure()`, and by SIGHUP, at which
`pyrmq nameserver`, `broker` and `server` read the files of `-c` again. A change by request or by
`reconfigure()` is written into that file before it is answered, so it holds after the next start;
without a file it holds until the server stops. SIGHUP changes nothing that the command line or the
environment has set, and nothing at all where one value is wrong or needs a new start; the log says
which. Without a file, or when the server's terminal was closed, SIGHUP stops it.
"""


def _rows(options: type[Options]) -> list[str]:
    lines = ["| key | name | default | range | what it does |", "|---|---|---|---|---|"]
    for item in options.fields:
        if item.kind is bool:
            allowed = "true, false"
        elif item.kind is int:
            most = "" if item.maximum == LONG_MAX else f" to {item.maximum}"
            allowed = f"{item.minimum}{most or ' or more'} {item.unit}".strip()
        else:
            allowed = ", ".join(item.choices) or "text"
        default = "" if item.default is None else f"`{as_text(item.default)}`"
        text = item.text + (" (live)" if item.live else "")
        lines.append(f"| `{item.apache}` | `{item.name}` | {default} | {allowed} | {text} |")
    return lines


def render() -> str:
    """The page's text."""
    parts = [_HEAD]
    for title, options in (("Name server", NameServerOptions), ("Broker", BrokerOptions)):
        parts.append(f"\n## {title}\n" + "\n".join(_rows(options)) + "\n")
    return "".join(parts)


def main() -> int:
    """Write the page, or with `--check` only say whether it is up to date."""
    text = render()
    if "--check" in sys.argv[1:]:
        return int(not PAGE.exists() or PAGE.read_text(encoding="utf-8") != text)
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
