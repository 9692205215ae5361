"""What the modules of a crate import and how long their functions are, read from the source."""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

Module = tuple[str, ...]
"""The path of a module in its crate: `("net", "peer")`; the crate's root is `()`."""

EXPORT = re.compile(r"\bpub(?:\([^)]*\))?\s+use\s([^;]+);")


def product_code(path: Path) -> str:
    """The text of a Rust file without its tests."""
    text = path.read_text(encoding="utf-8")
    return re.split(r"^#\[cfg\(test\)\]\nmod ", text, maxsplit=1, flags=re.MULTILINE)[0]


def _use_paths(tree: str) -> list[list[str]]:
    """The paths of a `use` declaration, its braces expanded."""
    head, _, rest = tree.strip().partition("{")
    prefix = [part.strip() for part in head.split("::") if part.strip()]
    if not rest:
        return [prefix]
    branches, depth, branch = [], 0, ""
    for character in rest.rpartition("}")[0] + ",":
        if character == "," and depth == 0:
            branches.append(branch)
            branch = ""
            continue
        depth += {"{": 1, "}": -1}.get(character, 0)
        branch += character
    return [prefix + path for branch in branches if branch.strip() for path in _use_paths(branch)]


def _rust_modules(source: Path) -> dict[Module, str]:
    """The code of each module of a crate, without comments and tests."""
    texts = {}
    for path in source.rglob("*.rs"):
        parts = list(path.relative_to(source).with_suffix("").parts)
        if parts[-1] in {"mod", "lib"}:
            parts.pop()
        texts[tuple(parts)] = re.sub(r"//[^\n]*", "", product_code(path))
    return texts


def _absolute(module: Module, name: list[str]) -> Module:
    """A path that `module` names, from the crate's root."""
    base, rest = list(module), name[1:] if name[0] == "self" else name
    while rest and rest[0] == "super":
        base, rest = base[:-1], rest[1:]
    if rest and rest[0] == "crate":
        base, rest = [], rest[1:]
    return (*base, *rest)


def _rust_exports(texts: dict[Module, str]) -> dict[Module, Module]:
    """What `pub use` declarations stand for: `net::Peer` is `net::peer::Peer`."""
    exports = {}
    for module, text in texts.items():
        for tree in EXPORT.findall(text):
            for name in _use_paths(tree):
                *path, last = name
                inner, _, alias = (part.strip() for part in last.partition(" as "))
                exports[*module, alias or inner] = _absolute(module, [*path, inner])
    # `pub use bytes;` names another crate.
    return {name: target for name, target in exports.items() if name != target}


def _module_of(path: Module, texts: dict[Module, str], exports: dict[Module, Module]) -> Module:
    """The module that defines what a path names, through every `pub use` on the way."""
    target = path
    while target and target not in texts:
        if target in exports:
            return _module_of((*exports[target], *path[len(target) :]), texts, exports)
        target = target[:-1]
    return target


@functools.cache
def rust_edges(source: Path) -> dict[Module, set[Module]]:
    """Which modules of a crate use which; tests and re-exports do not count."""
    texts = _rust_modules(source)
    exports = _rust_exports(texts)
    edges: dict[Module, set[Module]] = {module: set() for module in texts}
    uses = r"(?:^|\s)use\s+([^;]+);"
    for module, whole in texts.items():
        text = EXPORT.sub("", whole)
        names = [name for tree in re.findall(uses, text) for name in _use_paths(tree)]
        inline = re.findall(r"\b(?:crate|super)(?:::\w+)+", re.sub(uses, "", text))
        names += [name.split("::") for name in inline]
        for name in names:
            name[-1] = name[-1].partition(" as ")[0].strip()
            own = (*module, name[0])
            if name[0] not in {"crate", "super", "self"} and own not in texts | exports:
                continue
            target = _module_of(_absolute(module, name), texts, exports)
            if target and target != module:
                edges[module].add(target)
    return edges


def import_circles(edges: dict[Module, set[Module]]) -> list[set[Module]]:
    """Groups of modules that all reach one another."""
    reachable = {module: set(used) for module, used in edges.items()}
    for through in reachable:
        for used in reachable.values():
            if through in used:
                used |= reachable[through]
    groups = [
        {other for other in used if module in reachable[other]}
        for module, used in reachable.items()
    ]
    return [group for index, group in enumerate(groups) if group and group not in groups[:index]]


def rust_functions(text: str) -> list[tuple[str, int]]:
    """The functions of formatted code with their lines, those inside others and tests included."""
    head = re.compile(r"( *)(?:pub(?:\([^)]*\))? )?(?:(?:const|async|unsafe) )*fn (\w+)")
    lines = text.splitlines()
    found = []
    for start, line in enumerate(lines):
        match = head.match(line)
        if not match:
            continue
        indent, name = match.groups()
        opened = next(at for at in range(start, len(lines)) if lines[at].endswith(("{", ";", "}")))
        if lines[opened].endswith("{"):
            rest = range(opened + 1, len(lines))
            end = next(at for at in rest if lines[at].startswith(f"{indent}}}"))
            found.append((name, end - start + 1))
    return found


def upward_imports(order: list[str], edges: dict[Module, set[Module]]) -> list[str]:
    """Return the imports of a folder that do not point down in the order of its modules."""
    wrong = []
    for module, used in edges.items():
        if not module or module == ("main",):
            continue
        if module[0] not in order:
            wrong.append(f"{module[0]} (not in the order: add it to FOLDERS)")
            continue
        below = {*order[: order.index(module[0])], module[0]}
        wrong += [
            f"{'/'.join(module)} -> {'/'.join(other)}" for other in used if other[0] not in below
        ]
    return sorted(wrong)
