"""Write docs/options.md from the options that both servers declare in `pyrmq.config`.

Run it with `make docs`. A test fails if the page differs from the output.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyrmq.config import BrokerOptions, NameServerOptions, Options
from pyrmq.config.option import LONG_MAX, as_text
from tools.page import write

PAGE = Path(__file__).resolve().parents[1] / "docs" / "options.md"

_HEAD = """\
# Options of the servers

Written by `tools/gen_options.py` from `python/pyrmq/config`; do not edit.

| set an option in | form |
|---|---|
| a property file (`pyrmq broker -c broker.conf`) | its key, which is Apache's |
| Python | its name: `Broker(broker_name="broker-a")` |
| the command line | `--broker-name broker-a` |
| the environment, for the commands | `PYRMQ_NAMESERVER_LISTEN_PORT`, `PYRMQ_BROKER_BROKER_NAME` |

The command line overrides the environment, which overrides the file. A wrong value is an error that
names key, value and range. A warning names the keys without effect.

Options marked `live` can change while the server runs:

- Request code 25 (broker, `mqadmin updateBrokerConfig`), request code 318 (name server,
  `mqadmin updateNamesrvConfig`) and `reconfigure()` write the change to the file of `-c` before
  they answer, so it survives a restart. Without a file it lasts until the server stops.
- SIGHUP makes `pyrmq nameserver`, `broker` and `server` read the files of `-c` again.

SIGHUP never changes an option that the command line or the environment has set. If one value is
wrong or needs a restart, it changes nothing. The log says which. Without a file, or if the server's
terminal was closed, SIGHUP stops the server.
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
    """Return the page's text."""
    parts = [_HEAD]
    for title, options in (("Name server", NameServerOptions), ("Broker", BrokerOptions)):
        parts.append(f"\n## {title}\n" + "\n".join(_rows(options)) + "\n")
    return "".join(parts)


if __name__ == "__main__":
    sys.exit(write(PAGE, render()))
