"""Bad input: each is one clear message, an exit code, and nothing left behind that a resume would trust."""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path

import pytest

from burnish.cli import main
from burnish.commands import evaluation, machine
from burnish.sandbox import Check, host
from burnish.store import files
from burnish.types import BurnishError
from tests.cli.conftest import Burnish, recipe_file
from tests.model.test_gguf import gguf_bytes


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ("sede=1", "did you mean 'seed'?"),
        ("warmup.stepz=1", "did you mean 'steps'?"),
        ("seed=soon", "'soon' is not int"),
        ("seed=true", "is not int"),
        ("rollouts.temperature=0", "temperature must be above 0"),
        ("warmup.batch=0", "must be at least 1"),
        ("algorithm=3", "set its fields"),
        ("seed", "not of the form field=value"),
        ('domains=["absnt"]', "no domain 'absnt'"),
    ],
)
def test_a_field_that_does_not_fit(burnish: Burnish, tiny: Path, place: Path, field: str, said: str) -> None:
    done = burnish("train", recipe_file(place / "small.py", tiny), field)
    assert done.code == 2 and said in done.err and done.out == ""
    assert len(done.err.splitlines()) == 1 and not (place / "runs").exists()


def test_an_unknown_recipe_names_the_nearest(burnish: Burnish) -> None:
    done = burnish("train", "quikstart")
    assert done.code == 2 and "did you mean quickstart?" in done.err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("recipe = 3\n", "does not set `recipe`"),
        ("x = 1\nraise ValueError('no')\n", "line 2: ValueError: no"),
        ("x = = 1\n", "line 1: SyntaxError"),
    ],
)
def test_a_recipe_file_that_is_none(burnish: Burnish, place: Path, text: str, said: str) -> None:
    (place / "own.py").write_text(text, encoding="utf-8")
    done = burnish("train", "own.py")
    assert done.code == 2 and said in done.err and "own.py" in done.err
    assert "no such file" in burnish("train", "other.py").err


def test_a_second_run_into_the_same_directory(
    burnish: Burnish, tiny: Path, copied: Path, place: Path
) -> None:
    before = sorted(copied.rglob("*"))
    done = burnish("train", recipe_file(place / "small.py", tiny), "--run", copied)
    assert done.code == 2 and "burnish resume" in done.err
    assert sorted(copied.rglob("*")) == before


def test_a_model_that_is_missing(burnish: Burnish, place: Path) -> None:
    done = burnish("train", recipe_file(place / "small.py", Path("nowhere")))
    assert done.code == 2 and "nowhere" in done.err and not (place / "runs").exists()
    done = burnish("eval", "nowhere")
    assert done.code == 2 and "a GGUF file" in done.err and "Did you mean" not in done.err
    (place / "runs" / "nowhere").mkdir(parents=True)
    assert "Did you mean runs/nowhere?" in burnish("eval", "nowhere").err


def test_a_truncated_checkpoint(burnish: Burnish, copied: Path) -> None:
    weights = sorted(copied.glob("checkpoints/*/model.safetensors"))[-1]
    os.truncate(weights, 1000)
    for model in (copied, weights.parent):
        done = burnish("eval", model, "--domains", "absent", "--per-domain", 1)
        assert done.code == 2 and "damaged" in done.err and "model.safetensors" in done.err
    (copied / "evaluations" / "trained.jsonl").unlink()
    done = burnish("resume", copied)
    assert done.code == 2 and "model.safetensors" in done.err
    assert not (copied / "evaluations" / "trained.jsonl").exists()


def test_a_run_without_checkpoints(burnish: Burnish, copied: Path) -> None:
    shutil.rmtree(copied / "checkpoints")
    done = burnish("eval", copied)
    assert done.code == 2 and "no checkpoint yet" in done.err and "burnish resume" in done.err


def test_an_incomplete_checkpoint(burnish: Burnish, copied: Path) -> None:
    last = sorted(copied.glob("checkpoints/*"))[-1]
    (last / "burnish.json").unlink()
    done = burnish("eval", last)
    assert done.code == 2 and "no complete checkpoint" in done.err


def test_a_damaged_recipe_json(burnish: Burnish, copied: Path) -> None:
    recipe = json.loads((copied / "recipe.json").read_text())
    del recipe["name"]
    (copied / "recipe.json").write_text(json.dumps(recipe))
    done = burnish("resume", copied)
    assert done.code == 2 and "recipe.json is not a whole recipe" in done.err
    (copied / "recipe.json").write_text("{")
    assert burnish("resume", copied).code == 2


def test_a_gguf_of_an_unknown_architecture(burnish: Burnish, place: Path) -> None:
    (place / "odd.gguf").write_bytes(gguf_bytes({"general.architecture": "mamba"}, {}))
    done = burnish("eval", "odd.gguf")
    assert done.code == 2 and "'mamba' is not supported" in done.err
    (place / "odd.bin").write_bytes(b"what")
    assert "not a GGUF file" in burnish("eval", "odd.bin").err


def test_a_tokenizer_without_a_template(burnish: Burnish, tiny: Path, place: Path) -> None:
    model = Path(shutil.copytree(tiny, place / "bare"))
    config = json.loads((model / "tokenizer_config.json").read_text())
    del config["chat_template"]
    (model / "tokenizer_config.json").write_text(json.dumps(config))
    for done in (
        burnish("eval", model, "--domains", "absent", "--per-domain", 1),
        burnish("train", recipe_file(place / "small.py", model)),
    ):
        assert done.code == 2 and "template" in done.err and "bare" in done.err
    assert not (place / "runs").exists()


def test_a_full_disk(burnish: Burnish, tiny: Path, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = recipe_file(place / "small.py", tiny)

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(files.os, "fsync", full)
        done = burnish("train", recipe, "--run", "full")
    assert done.code == 1 and "No space left" in done.err and "MiB free" in done.err
    assert not (place / "full" / "recipe.json").exists()
    assert burnish("resume", "full").code == 2


def test_a_machine_without_sandboxes(
    burnish: Burnish, tiny: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> None:
        raise BurnishError("the local sandbox cannot isolate:\n  bubblewrap: missing\n    apt-get install it")

    monkeypatch.setattr(host.probe, "require", missing)
    monkeypatch.setattr("burnish.commands.training.require", missing)
    # Concurrent episodes raise it together, as a group.
    done = burnish("eval", tiny, "--domains", "files", "--per-domain", 2)
    assert done.code == 1 and "apt-get install it" in done.err and done.err.count("cannot isolate") == 1
    done = burnish("train", recipe_file(place / "small.py", tiny), 'domains=["files"]')
    assert done.code == 1 and "apt-get install it" in done.err and not (place / "runs").exists()


def test_doctor_names_what_is_missing(burnish: Burnish, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        machine, "probe", lambda: [Check("bubblewrap", False, "not there", "apt-get install it")]
    )
    done = burnish("doctor", "--quiet")
    assert done.code == 1 and "missing  sandbox: bubblewrap: not there" in done.out
    assert "apt-get install it" in done.out and "Python" not in done.out
    found = burnish("doctor", "--json")
    assert found.code == 1 and found.data["ok"] is False


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["eval", "TINY", "--per-domain", "0"], "--per-domain"),
        (["eval", "TINY", "--domains", "absnt"], "no domain 'absnt'"),
        (["eval", "TINY", "--split", "test"], "heldout or train"),
        (["eval", "TINY", "--out", "no/such/file.jsonl"], "cannot be a file to write"),
        (["compare", "no.jsonl", "TINY"], "no such file of episodes"),
        (["compare", "RUN:bse", "RUN"], "it has: base, warmup, trained"),
        (["compare", "RUN:base", "RUN", "--margin", "2"], "margin"),
        (["compare", "RUN:base", "nowhere"], "no such model"),
        (["domains", "show", "nothing"], "no domain 'nothing'"),
        (["domains", "check", "absent", "--count", "1"], "at least 2"),
        (["sandbox", "run"], "there is no command"),
        (["log", "verify", "nowhere"], "No audit log"),
        (["agent", "TINY", "do it", "--workdir", "nowhere"], "no such directory"),
        (["agent", "TINY", " ", "--workdir", "."], "the task is empty"),
        (["agent", "TINY", "do it", "--workdir", ".", "--apply"], "add --yes"),
        (["serve", "TINY", "TINY"], "two models are called"),
        (["serve", "TINY", "--port", "70000"], "ports go from 0"),
        (["serve", "TINY", "--slots", "0"], "slots must be at least 1"),
        (["chat", "TINY", "--temperature=-1"], "--temperature"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else "",
)
def test_wrong_requests(
    burnish: Burnish, tiny: Path, finished: Path, arguments: list[str], said: str
) -> None:
    placed = [a.replace("TINY", str(tiny)).replace("RUN", str(finished)) for a in arguments]
    done = burnish(*placed)
    assert done.code == 2 and said in done.err.replace("\n", " "), done.err
    assert done.out == "" and "Traceback" not in done.err


def test_usage_errors_of_the_parser(burnish: Burnish) -> None:
    assert burnish("train").code == 2
    assert burnish("no-such-command").code == 2
    assert burnish("eval", "x", "--per-domain", "many").code == 2


def test_a_bug_is_told_as_one(burnish: Burnish, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise KeyError("lost")

    monkeypatch.setattr(evaluation, "find_model", broken)
    done = burnish("eval", tiny)
    assert done.code == 1 and "bug in Burnish: KeyError: 'lost'" in done.err
    assert "Traceback" not in done.err and len(done.err.splitlines()) == 1
    monkeypatch.setenv("BURNISH_DEBUG", "1")
    assert "Traceback" in burnish("eval", tiny).err


def test_an_interrupt_between_steps_is_one_line(
    burnish: Burnish, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(evaluation, "find_model", interrupted)
    done = burnish("eval", tiny)
    assert (done.code, done.err) == (130, "stopped\n")
    assert main(["--version"]) == 0
