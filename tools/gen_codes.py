"""Write python/pyrmq/codes.py from crates/remoting/src/codes.rs.

Run it after adding a code there: ``python tools/gen_codes.py``. With ``--check`` it writes nothing
and fails if the file differs from the output.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "crates" / "remoting" / "src" / "codes.rs"
TARGET = ROOT / "python" / "pyrmq" / "codes.py"

HEAD = '''"""Request and response codes of RocketMQ, by Apache's names.

Generated from crates/remoting/src/codes.rs by tools/gen_codes.py: change the codes there.

Example:
    >>> from pyrmq.codes import ResponseCode
    >>> ResponseCode(17).name
    'TOPIC_NOT_EXIST'
"""

from enum import IntEnum

__all__ = ["RequestCode", "ResponseCode"]
'''

CLASSES = {
    "request": ("RequestCode", "What a peer can ask for."),
    "response": ("ResponseCode", "How a peer can answer."),
}


def render(source: str) -> str:
    """Render the Python module for the text of codes.rs."""
    parts = [HEAD]
    for module, (name, doc) in CLASSES.items():
        found = re.search(
            rf"pub mod {module} \{{\s*codes!\(\w+ \{{(.*?)\n    \}}\);", source, re.DOTALL
        )
        if found is None:
            raise ValueError(f"no table of module {module} in {SOURCE.name}")
        rows = re.findall(r"^\s*(\w+) = (-?[\d_]+),$", found.group(1), re.MULTILINE)
        lines = "\n".join(f"    {code} = {int(value)}" for code, value in rows)
        parts.append(f'\n\nclass {name}(IntEnum):\n    """{doc}"""\n\n{lines}\n')
    return "".join(parts)


def main(arguments: list[str]) -> int:
    """Write or check the module."""
    text = render(SOURCE.read_text(encoding="utf-8"))
    if "--check" in arguments:
        if TARGET.read_text(encoding="utf-8") == text:
            return 0
        sys.stderr.write(f"{TARGET.relative_to(ROOT)} is old: run python tools/gen_codes.py\n")
        return 1
    TARGET.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
