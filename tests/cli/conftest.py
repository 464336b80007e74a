"""The command line as a user has it: a directory of their own, a tiny model in it, and a finished tiny run."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from burnish.cli import main
from burnish.store.files import from_json
from tests.model.tiny import tiny_directory

RECIPE = """
from pathlib import Path
from burnish.evaluate.suite import Suite
from burnish.recipes.road import Road, Rollouts, WarmUp

recipe = Road(
    name="small",
    model=Path({model!r}),
    domains=("absent", "pages"),
    warmup=WarmUp(demonstrations=4, steps={warm}, batch=2),
    rollouts=Rollouts(steps={steps}, tasks=2, size=2, turn_tokens=12, context=512),
    suite=Suite(per_domain=2),
    checkpoint_every=1,
)
"""


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str

    @property
    def data(self) -> dict[str, Any]:
        """The one JSON object."""
        (line,) = self.out.splitlines()
        value: dict[str, Any] = from_json(line.encode())
        return value


Burnish = Callable[..., Outcome]


@pytest.fixture
def burnish(capsys: pytest.CaptureFixture[str]) -> Burnish:
    """Runs a command in this process, through the boundary that turns exceptions into messages."""

    def run(*arguments: object) -> Outcome:
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        return Outcome(code, *capsys.readouterr())

    return run


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory to work in; caches and logs of the user lie below it too."""
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("BURNISH_DEBUG", raising=False)
    return here


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_directory(tmp_path_factory.mktemp("cli") / "tiny")


def recipe_file(path: Path, model: Path, warm: int = 2, steps: int = 2) -> Path:
    path.write_text(RECIPE.format(model=str(model), warm=warm, steps=steps), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def finished(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that went to its end. Not to be changed: copy it with `copied`."""
    home = tmp_path_factory.mktemp("finished")
    recipe = recipe_file(home / "small.py", tiny)
    assert main(["train", str(recipe), "--run", str(home / "run"), "--json"]) == 0
    return home / "run"


@pytest.fixture
def copied(finished: Path, place: Path) -> Path:
    return Path(shutil.copytree(finished, place / "run"))
