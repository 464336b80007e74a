"""Commands as processes of their own: Ctrl-C at any moment, and a server that ends when told."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from burnish.store.run import RunDirectory
from tests.cli.conftest import Burnish, recipe_file

COMMAND = [sys.executable, "-m", "burnish"]


def started(*arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*COMMAND, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )


@pytest.mark.parametrize("moment", ["evaluate base: ", "warm-up: ", "reinforcement 1/"])
def test_ctrl_c_in_training(burnish: Burnish, tiny: Path, place: Path, moment: str) -> None:
    recipe = recipe_file(place / "small.py", tiny, warm=30, steps=3)
    with started("train", recipe, "--run", "run") as process:
        assert process.stderr is not None
        seen = next(line for line in process.stderr if line.startswith(moment))
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130, (seen, err)
    assert err.splitlines()[-1] == "stopped; continue with: burnish resume run"
    assert "Traceback" not in err and out == ""
    for checkpoint in RunDirectory.open(Path("run")).checkpoints():
        assert (checkpoint.path / "model.safetensors").exists()
    done = burnish("resume", "run", "--json")
    assert done.code == 0 and done.data["trained"]["tasks"] == 4
    assert burnish("log", "verify", "run").code == 0
    steps = [row["step"] for row in RunDirectory.open(Path("run")).metrics()]
    assert steps == list(range(33))


def test_serve(tiny: Path) -> None:
    with started("serve", f"small={tiny}", "--port", 0, "--slots", 1, "--context", 256, "--json") as process:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        assert ready["models"] == ["small"]
        body = {"model": "small", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4}
        request = urllib.request.Request(
            f"{ready['url']}/chat/completions",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as response:
            answer = json.load(response)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert answer["usage"]["completion_tokens"] <= 4
    assert process.returncode == 0 and "Traceback" not in err and "events.jsonl" in err
