"""From what a person types as MODEL to weights in an engine.

What this file is: the forms that MODEL may have (a run, a checkpoint, a Hugging Face directory, a GGUF
file, the packaged model's name), each checked before anything is loaded, and the opening of an engine with
it.
What it is not: it downloads nothing.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from burnish.commands.output import note
from burnish.engine.local import LocalEngine
from burnish.model.prepare import import_model
from burnish.model.renderer import Renderer
from burnish.model.weights import load_config, load_model
from burnish.recipes.road import SMOLLM2, Road, Rollouts, base_model
from burnish.recipes.settings import from_json
from burnish.store.lineage import FILE as LINEAGE_FILE
from burnish.store.lineage import check_files, read_lineage
from burnish.store.run import RunDirectory
from burnish.types import UsageError

FORMS = (
    "a run (runs/quickstart), a checkpoint or another Hugging Face directory, a GGUF file, or "
    f"{SMOLLM2}, which comes with the installation"
)


@dataclass(frozen=True, slots=True)
class FoundModel:
    """A model directory that exists, under the name that people know it by. `version` is that of the weights
    in its run, 0 elsewhere; `rollouts` are the limits that it was trained with, or the usual ones."""

    name: str
    path: Path
    version: int
    rollouts: Rollouts


def find_model(text: str) -> FoundModel:
    """Raises UsageError where there is none, and where files are missing, damaged or of an unknown kind."""
    path = Path(text)
    if text == SMOLLM2 and not path.exists():
        found = FoundModel(SMOLLM2, prepared(Path("models") / SMOLLM2), 0, Rollouts())
    elif path.is_file():
        found = FoundModel(path.stem, _imported(path), 0, Rollouts())
    elif (path / "recipe.json").is_file():
        found = _of_run(path)
    elif path.is_dir():
        found = _of_directory(path)
    else:
        meant = f" Did you mean {Path('runs') / text}?" if (Path("runs") / text).is_dir() else ""
        raise UsageError(f"{text}: no such model.{meant} A model is {FORMS}.")
    load_config(found.path)
    return found


def prepared(path: Path) -> Path:
    """`path`, made from the packaged model where it is that one and not there yet."""
    if path.name == SMOLLM2 and not path.exists():
        note(f"preparing {path} from its package, once")
    return base_model(path)


def _of_run(path: Path) -> FoundModel:
    run = RunDirectory.open(path)
    checkpoints = run.checkpoints()
    if not checkpoints:
        raise UsageError(f"{path} has no checkpoint yet; continue it with: burnish resume {path}")
    final = [c for c in checkpoints if c.lineage.notes.get("final")]
    chosen = (final or checkpoints)[-1]
    check_files(chosen.path, chosen.lineage)
    if chosen.lineage.notes.get("stage") != "rl" or not chosen.lineage.notes.get("final"):
        note(f"{path} is not trained to its end; taking {chosen.name}. Continue it: burnish resume {path}")
    road = from_json(Road, run.recipe, str(path / "recipe.json"))
    return FoundModel(path.resolve().name, chosen.path, chosen.step + 1, road.rollouts)


def _of_directory(path: Path) -> FoundModel:
    version = 0
    if (path / LINEAGE_FILE).is_file():
        lineage = read_lineage(path)
        check_files(path, lineage)
        version = lineage.step + 1 if lineage.recipe else 0
    elif path.parent.name == "checkpoints" and (path.parent.parent / "recipe.json").is_file():
        read_lineage(path)  # says that the checkpoint is not complete
    if not (path / "config.json").is_file():
        raise UsageError(f"{path}: there is no config.json in it. A model is {FORMS}.")
    return FoundModel(path.resolve().name, path, version, Rollouts())


def _imported(path: Path) -> Path:
    """A GGUF file as a model directory, made once for each content."""
    with path.open("rb") as file:
        if file.read(4) != b"GGUF":
            raise UsageError(f"{path} is a file, but not a GGUF file. A model is {FORMS}.")
        file.seek(0)
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    target = home("XDG_CACHE_HOME", ".cache") / "models" / f"{path.stem}-{digest[:12]}"
    if not target.exists():
        note(f"importing {path} into {target}")
    return import_model(path, target)


def home(variable: str, usual: str) -> Path:
    """The user's directory for caches or logs, by the XDG convention."""
    return Path(os.environ.get(variable) or Path.home() / usual) / "burnish"


@asynccontextmanager
async def opened(found: FoundModel, slots: int, context: int) -> AsyncIterator[tuple[LocalEngine, Renderer]]:
    """An engine with the model's weights, and its renderer. `context` is cut to what the model can hold."""
    if slots < 1 or context < 2:
        raise UsageError("slots must be at least 1 and the context at least 2 tokens")
    config = load_config(found.path)
    renderer = Renderer.from_directory(found.path)
    weights = load_model(found.path, torch.bfloat16).state_dict()
    engine = LocalEngine(config, slots=slots, context=min(context, config.max_positions))
    try:
        await engine.load(weights, found.version)
        yield engine, renderer
    finally:
        await engine.close()
