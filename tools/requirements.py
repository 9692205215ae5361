"""Print requirements of extras of pyproject.toml, one per line: `requirements.py dev spark`."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path


def requirements(extras: list[str]) -> list[str]:
    """Resolve extras, including those that name other extras of this project."""
    project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())[
        "project"
    ]
    found: list[str] = list(project.get("dependencies", []))
    for extra in extras:
        for line in project["optional-dependencies"][extra]:
            own = re.fullmatch(rf"{re.escape(project['name'])}\[(.+)\]", line)
            found += requirements(own.group(1).split(",")) if own else [line]
    return list(dict.fromkeys(found))


if __name__ == "__main__":
    print("\n".join(requirements(sys.argv[1:])))
