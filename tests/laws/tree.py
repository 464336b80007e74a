"""A package's sources as syntax trees, and what imports what in them.

What this file is: `Source`, one parsed file, and the graph of imports, in which lazy imports, imports for
types only and `import_module("...")` of a constant count like any other.
What it is not: it imports nothing that it looks at, and judges nothing (`rules` does).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path


@dataclass(frozen=True)
class Source:
    """One file. `module` is its dotted name below the package's parent: `burnish.train.loop`."""

    path: Path
    module: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, str(self.path))

    @property
    def is_package(self) -> bool:
        return self.path.name == "__init__.py"

    def at(self, line: int) -> str:
        return f"{self.module}:{line}"


def sources(package: Path) -> list[Source]:
    """Every Python file of the package directory, sorted."""
    found = []
    for path in sorted(package.rglob("*.py")):
        parts = [package.name, *path.relative_to(package).with_suffix("").parts]
        module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found.append(Source(path, module, path.read_text(encoding="utf-8")))
    return found


def imports(source: Source, known: Mapping[str, Source], root: str) -> Iterator[tuple[int, str]]:
    """(line, module) of everything of `root` that the file imports, wherever in the file. A name taken from a
    package is that package's module where there is one, and else the package."""
    for node in ast.walk(source.tree):
        for base, name in _named(node, source):
            target = f"{base}.{name}" if f"{base}.{name}" in known else base
            if target == root or target.startswith(root + "."):
                yield getattr(node, "lineno", 1), target


def _named(node: ast.AST, source: Source) -> list[tuple[str, str]]:
    """(module, name taken from it), the name empty where the module itself is imported."""
    if isinstance(node, ast.Import):
        return [(alias.name, "") for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        base = node.module or ""
        if node.level:
            parts = source.module.split(".")
            parts = parts[: len(parts) - node.level + source.is_package]
            base = ".".join([*parts, *([node.module] if node.module else [])])
        return [(base, alias.name) for alias in node.names]
    if isinstance(node, ast.Call) and node.args:
        function = node.func
        called = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        first = node.args[0]
        if called in ("import_module", "__import__") and isinstance(first, ast.Constant):
            return [(str(first.value), "")]
    return []


def graph(files: list[Source]) -> dict[str, list[str]]:
    """Which modules each module imports."""
    known = {source.module: source for source in files}
    root = files[0].module.split(".")[0]
    return {s.module: sorted({name for _, name in imports(s, known, root)}) for s in files}
