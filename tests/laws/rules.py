"""The laws of the code base, each a function from a package's files to what breaks it.

What this file is: layer order, fences, cycles, sizes, names, headers, dangerous calls, leftovers.
What it is not: it runs nothing. `tests/test_laws.py` applies each law to the package and, so that no law is
one that cannot fail, to a small made-up tree that breaks it.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Callable, Iterator

from tests.laws.tree import Source, graph, imports

ORDER = (
    *("types", "interfaces", "observe", "store", "sandbox", "tools", "rewards", "domains", "model", "engine"),
    *("agent", "rollout", "evaluate", "train", "deploy", "serve", "dashboard", "recipes", "commands", "cli"),
    "__main__",
)
FILE_LINES, FUNCTION_LINES, LOOP_LINES, SHORT_PACKAGE = 450, 60, 150, 8
FORBIDDEN_NAMES = re.compile(r"^_?(utils?|helpers?|misc|mixins?)$|mixin$|manager$", re.IGNORECASE)
LEFTOVERS = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
DANGEROUS_CALLS = frozenset((
    "eval", "exec", "os.system", "os.popen", "yaml.load", "yaml.unsafe_load", "yaml.full_load", "torch.load",
    "subprocess.getoutput", "subprocess.getstatusoutput", "asyncio.create_subprocess_shell",
))  # fmt: skip
DANGEROUS_MODULES = frozenset(("pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve", "joblib"))

Law = Callable[[list[Source]], list[str]]


def layer_order(files: list[Source]) -> list[str]:
    """A package imports only packages above it, and stands in the order itself."""
    known = {source.module: source for source in files}
    root = files[0].module.split(".")[0]
    broken = []
    for source in files:
        mine = _layer(source.module)
        if mine not in ("", *ORDER):
            broken.append(f"{source.module} is in no layer")
            continue
        for line, target in imports(source, known, root):
            theirs = _layer(target)
            # The root package holds the version and nothing else, so that anything may import it.
            if mine == "" or (theirs and (theirs not in ORDER or ORDER.index(theirs) > ORDER.index(mine))):
                broken.append(f"{source.at(line)} imports {target}")
    return broken


def serving_does_not_train(files: list[Source]) -> list[str]:
    """Nothing that `serve` imports, directly or through others, is in `train`."""
    edges = graph(files)
    broken = []
    for start in (module for module in edges if _layer(module) == "serve"):
        seen, todo = {start}, [start]
        while todo:
            fresh = [n for n in edges.get(todo.pop(), []) if n not in seen]
            seen.update(fresh)
            todo += fresh
        broken += [f"{start} reaches {module}" for module in sorted(seen) if _layer(module) == "train"]
    return broken


def no_cycles(files: list[Source]) -> list[str]:
    """No module imports itself, through whatever others."""
    edges = graph(files)
    done: set[str] = set()
    cycles = []

    def visit(module: str, path: list[str]) -> None:
        if module in path:
            cycles.append(" -> ".join([*path[path.index(module) :], module]))
        elif module not in done:
            for target in edges.get(module, []):
                visit(target, [*path, module])
            done.add(module)

    for module in sorted(edges):
        visit(module, [])
    return cycles


def sizes(files: list[Source]) -> list[str]:
    """Files, functions and the training loop stay small."""
    broken = []
    for source in files:
        lines = len(source.text.splitlines())
        limit = LOOP_LINES if source.module.endswith(".train.loop") else FILE_LINES
        if lines >= limit:
            broken.append(f"{source.module} has {lines} lines, the law is under {limit}")
        for node in ast.walk(source.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                if length >= FUNCTION_LINES:
                    broken.append(f"{source.at(node.lineno)} {node.name} has {length} lines")
    return broken


def honest_names(files: list[Source]) -> list[str]:
    """No file, class or function is named for not knowing what it is."""
    broken = []
    for source in files:
        named = [(1, part) for part in source.module.split(".")]
        for node in ast.walk(source.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                named.append((node.lineno, node.name))
        broken += [f"{source.at(line)} {name}" for line, name in named if FORBIDDEN_NAMES.search(name)]
    return broken


def headers(files: list[Source]) -> list[str]:
    """A file opens with what it is and what it is not; a short package file only with what it is."""
    broken = []
    for source in files:
        text = ast.get_docstring(source.tree) or ""
        short = source.is_package and len(source.text.splitlines()) <= SHORT_PACKAGE
        if not text:
            broken.append(f"{source.module} has no header")
        elif not short and not ("What this file is:" in text and "What it is not:" in text):
            broken.append(f"{source.module} does not say what it is and what it is not")
    return broken


def nothing_dangerous(files: list[Source]) -> list[str]:
    """No text becomes code, no bytes become objects, no string reaches a shell."""
    broken = []
    for source in files:
        for node in ast.walk(source.tree):
            broken += [f"{source.at(line)} {what}" for line, what in _dangers(node)]
    return broken


def _dangers(node: ast.AST) -> Iterator[tuple[int, str]]:
    if isinstance(node, ast.Import):
        names = [alias.name.split(".")[0] for alias in node.names]
        yield from ((node.lineno, n) for n in names if n in DANGEROUS_MODULES)
    elif isinstance(node, ast.ImportFrom) and not node.level:
        full = [f"{node.module}.{alias.name}" for alias in node.names]
        yield from ((node.lineno, n) for n in full if n in DANGEROUS_CALLS)
        if (node.module or "").split(".")[0] in DANGEROUS_MODULES:
            yield node.lineno, str(node.module)
    elif isinstance(node, ast.Call):
        name = ast.unparse(node.func)
        if name in DANGEROUS_CALLS:
            yield node.lineno, name
        for keyword in node.keywords:
            if keyword.arg == "shell" and not (
                isinstance(keyword.value, ast.Constant) and keyword.value.value is False
            ):
                yield node.lineno, "shell="


def no_leftovers(files: list[Source]) -> list[str]:
    """What is unfinished is finished or an issue, not a comment."""
    broken = []
    for source in files:
        for token in tokenize.generate_tokens(io.StringIO(source.text).readline):
            if token.type in (tokenize.COMMENT, tokenize.STRING) and LEFTOVERS.search(token.string):
                broken.append(f"{source.at(token.start[0])} {token.string.strip()[:60]}")
    return broken


def _layer(module: str) -> str:
    """The layer of a dotted module; empty for the root package."""
    return [*module.split("."), ""][1]
