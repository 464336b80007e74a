"""train, resume, report: a recipe becomes a run.

What this file is: finding a recipe, checking it before anything is written, running or continuing it, and
the last lines that it prints.
What it is not: it trains nothing itself; `recipes.road` does.
"""

from __future__ import annotations

import asyncio
import difflib
import importlib
import importlib.util
import pkgutil
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from burnish import recipes
from burnish.commands.models import prepared
from burnish.commands.output import Stopped, emit, say
from burnish.domains.catalogue import all_domains
from burnish.model.renderer import Renderer
from burnish.model.weights import load_config
from burnish.observe.progress import LiveView
from burnish.recipes.results import closing_lines, write_results
from burnish.recipes.road import Road, chosen_domains, execute
from burnish.recipes.settings import from_json, override, to_json
from burnish.sandbox.local import LocalSandboxes
from burnish.sandbox.probe import require
from burnish.store.run import RunDirectory
from burnish.types import BurnishError, UsageError


def train(recipe: str, assignments: Sequence[str], directory: Path | None, as_json: bool) -> None:
    """A new run. What can be refused is refused before the run's directory exists."""
    road = override(find_recipe(recipe), assignments)
    path = directory or Path("runs") / road.name
    check(road)
    with RunDirectory.create(path, to_json(road)) as run:
        _go(road, run, as_json)


def resume(path: Path, as_json: bool) -> None:
    with RunDirectory.resume(path) as run:
        where = str(path / "recipe.json")
        try:
            road = from_json(Road, run.recipe, where)
        except TypeError as error:
            raise UsageError(f"{where} is not a whole recipe: {error}") from None
        check(road)
        _go(road, run, as_json)


def report(path: Path, as_json: bool) -> None:
    """Makes `summary.json` and `report.html` again from what the run holds."""
    run = RunDirectory.open(path)
    if not run.evaluations():
        raise UsageError(f"{path} has no evaluation to report yet; continue it with: burnish resume {path}")
    summary = write_results(run, {d.name: d.title for d in all_domains(LocalSandboxes())})
    _finish(run, summary, as_json)


def check(road: Road) -> None:
    """Raises BurnishError for a model or a domain that the recipe cannot be run with, and where it needs
    sandboxes and this machine has none."""
    base = prepared(road.model)
    load_config(base)
    Renderer.from_directory(base)
    domains = chosen_domains(road.domains, LocalSandboxes())
    if any(hasattr(domain, "sandboxes") for domain in domains.values()):
        require()


def _go(road: Road, run: RunDirectory, as_json: bool) -> None:
    try:
        with LiveView() as view:
            summary = asyncio.run(execute(road, run, view))
    except KeyboardInterrupt:
        _log(run, "interrupted")
        raise Stopped(f"stopped; continue with: burnish resume {run.path}") from None
    except Exception as error:
        _log(run, f"{type(error).__name__}: {error}")
        raise
    _finish(run, summary, as_json)


def _log(run: RunDirectory, what: str) -> None:
    # The reason of the end may be that nothing can be written.
    with suppress(BurnishError, OSError):
        run.audit.append("error", {"what": what})


def _finish(run: RunDirectory, summary: dict[str, Any], as_json: bool) -> None:
    if as_json:
        emit({"run": str(run.path), "report": str(run.report_path), **summary})
        return
    for line in closing_lines(run, summary):
        say(line)


def find_recipe(text: str) -> Road:
    """A shipped recipe by name, or the `recipe` of somebody's own Python file. Raises UsageError."""
    path = Path(text)
    if path.suffix == ".py":
        return _own(path)
    modules = [m.name for m in pkgutil.iter_modules(recipes.__path__)]
    name = text.replace("-", "_")
    road = (
        getattr(importlib.import_module(f"{recipes.__name__}.{name}"), "recipe", None)
        if (name in modules)
        else None
    )
    if isinstance(road, Road):
        return road
    names = shipped()
    near = difflib.get_close_matches(text, names, 1)
    meant = f"did you mean {near[0]}? " if near else ""
    raise UsageError(
        f"no recipe {text!r}; {meant}Burnish has: {', '.join(names)}. Your own is a path ending in .py."
    )


def shipped() -> list[str]:
    """The names of the recipes that come with Burnish."""
    found = []
    for module in pkgutil.iter_modules(recipes.__path__):
        made = getattr(importlib.import_module(f"{recipes.__name__}.{module.name}"), "recipe", None)
        if isinstance(made, Road):
            found.append(module.name.replace("_", "-"))
    return found


def _own(path: Path) -> Road:
    """Runs the user's file, as `python FILE` would."""
    if not path.is_file():
        raise UsageError(f"{path}: no such file; a recipe of your own is a Python file that sets `recipe`")
    spec = importlib.util.spec_from_file_location(f"burnish_recipe_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except BurnishError:
        raise
    except Exception as error:
        line = _line_in(path, error)
        raise UsageError(f"{path}{line}: {type(error).__name__}: {error}") from error
    road = getattr(module, "recipe", None)
    if not isinstance(road, Road):
        raise UsageError(f"{path} does not set `recipe` to a burnish.recipes.road.Road")
    return road


def _line_in(path: Path, error: Exception) -> str:
    """The line of the user's file at which it failed."""
    if isinstance(error, SyntaxError):
        return f" line {error.lineno}"
    trace, line = error.__traceback__, ""
    while trace is not None:
        if Path(trace.tb_frame.f_code.co_filename) == path.absolute():
            line = f" line {trace.tb_lineno}"
        trace = trace.tb_next
    return line
