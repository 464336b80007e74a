"""What each command gives when nothing is wrong, with a model that knows nothing."""

from __future__ import annotations

import builtins
import io
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from burnish import __version__
from burnish.commands import conversation, output
from burnish.sandbox import seccomp
from burnish.store.run import RunDirectory
from tests.cli.conftest import Burnish
from tests.model.test_prepare import as_gguf

SMALL = ("--domains", "absent,pages", "--per-domain", 2)


def test_help_answers_without_torch() -> None:
    check = (
        "import sys, burnish.cli\n"
        "code = burnish.cli.main(['--help'])\n"
        "sys.exit(code or ('torch' in sys.modules) or ('pydantic' in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert all(name in done.stdout for name in ("doctor", "train", "resume", "eval", "compare", "serve"))


def test_version(burnish: Burnish) -> None:
    assert burnish("--version").out == f"burnish {__version__}\n"


def test_a_run_leaves_its_results(burnish: Burnish, copied: Path) -> None:
    run = RunDirectory.open(copied)
    assert list(run.evaluations()) == ["base", "warmup", "trained"]
    (copied / "report.html").unlink()
    (copied / "summary.json").unlink()
    told = burnish("report", copied)
    assert told.code == 0 and (copied / "report.html").exists() and (copied / "summary.json").exists()
    lines = told.out.splitlines()
    assert [line.split(":")[0].strip() for line in lines[:3]] == ["base", "warmup", "trained"]
    assert "paired p" in told.out and str(copied / "report.html") in lines[-1]
    found = burnish("report", copied, "--json").data
    assert found["trained"]["tasks"] == 4 and found["run"] == str(copied)


def test_resuming_a_finished_run_says_the_same(burnish: Burnish, copied: Path) -> None:
    before = {p: p.read_bytes() for p in copied.rglob("*.safetensors")}
    done = burnish("resume", copied, "--json")
    assert done.code == 0 and done.data["trained"]["success"] is not None
    assert {p: p.read_bytes() for p in copied.rglob("*.safetensors")} == before


def test_eval_and_compare(burnish: Burnish, tiny: Path, finished: Path, place: Path) -> None:
    done = burnish("eval", tiny, *SMALL, "--out", "a.jsonl", "--report", "a.html", "--json")
    assert done.code == 0 and done.data["overall"]["tasks"] == 4
    assert set(done.data["domains"]) == {"absent", "pages"} and done.data["invalid"] == 0
    assert "<html" in (place / "a.html").read_text()
    table = burnish("eval", finished, *SMALL)
    assert table.code == 0 and "overall" in table.out and "95 % interval" in table.out
    # A file against a model, which is measured on the file's tasks; nothing says which is better.
    verdict = burnish("compare", "a.jsonl", tiny, "--json")
    assert verdict.code == 3 and verdict.data["tasks"] == 4 and verdict.data["verdict"] == "inconclusive"


def test_verdicts_are_exit_codes(burnish: Burnish, tiny: Path, finished: Path, place: Path) -> None:
    same = burnish("compare", f"{finished}:base", finished, "--margin", 0.9)
    assert same.code == 0 and same.out.splitlines()[-1].startswith("pass: ")
    burnish("eval", tiny, "--domains", "absent", "--per-domain", 12, "--out", "bad.jsonl")
    lines = [json.loads(line) for line in (place / "bad.jsonl").read_text().splitlines()]
    for line in lines:
        for part in (line["score"], line["score"]["parts"]["outcome"]):
            part["value"] = 1.0
    (place / "good.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    worse = burnish("compare", "good.jsonl", "bad.jsonl")
    assert worse.code == 1 and worse.out.splitlines()[-1].startswith("regression: ")
    other = burnish("compare", "good.jsonl", f"{finished}:base")
    assert other.code == 2 and "did not run the same tasks" in other.err


def test_a_gguf_is_imported_once(burnish: Burnish, tiny: Path, place: Path) -> None:
    (place / "small.gguf").write_bytes(as_gguf(tiny))
    first = burnish("eval", "small.gguf", "--domains", "absent", "--per-domain", 1, "--json")
    assert first.code == 0 and "importing" in first.err
    again = burnish("eval", "small.gguf", "--domains", "absent", "--per-domain", 1, "--json")
    assert again.code == 0 and "importing" not in again.err and again.data["path"] == first.data["path"]


def test_chat_from_a_pipe(burnish: Burnish, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(*options: object):
        monkeypatch.setattr(sys, "stdin", io.StringIO("Hello there.\n"))
        return burnish("chat", tiny, "--max-tokens", 8, *options)

    answer = ask("--json").data
    assert answer["model"] == "tiny" and answer["tokens"] > 8
    assert ask().out.rstrip("\n") and ask("--json").data == answer
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    assert burnish("chat", tiny).code == 2


def test_chat_in_a_terminal(burnish: Burnish, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    typed = iter(["Hello.", "", "And more?", "/new", "x" * 600, "Again.", "/quit"])
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(builtins, "input", lambda prompt: next(typed))
    done = burnish("chat", tiny, "--max-tokens", 4, "--context", 128, "--system", "Be brief.")
    assert done.code == 0 and "/quit ends" in done.err
    assert done.err.count("fills the context of 128 tokens") == 1 and len(done.out.splitlines()) >= 3
    assert next(typed, None) is None


def test_an_answer_can_be_stopped(burnish: Burnish, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    typed = iter(["Hello.", "Go on.", "/quit"])
    stops = iter([True])

    def say(text: str = "", end: str = "\n") -> None:
        if next(stops, False):
            signal.raise_signal(signal.SIGINT)
        output.say(text, end)

    monkeypatch.setattr(conversation, "say", say)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(builtins, "input", lambda prompt: next(typed))
    done = burnish("chat", tiny, "--max-tokens", 40)
    assert done.code == 0 and done.out.count(" (stopped)\n") == 1
    assert done.out.split(" (stopped)\n")[1].strip()


def test_domains(burnish: Burnish) -> None:
    assert len(burnish("domains", "list", "--json").data["domains"]) == 10
    assert "database" in burnish("domains", "list").out
    shown = burnish("domains", "show", "absent", "--count", 2, "--json").data["tasks"]
    assert len(shown) == 2 and "secret" not in shown[0] and "setup" not in shown[0]
    assert "user: " in burnish("domains", "show", "absent", "--split", "heldout").out
    checked = burnish("domains", "check", "absent", "--count", 4, "--json")
    assert checked.code == 0 and checked.data["passed"]


def test_doctor(burnish: Burnish) -> None:
    names = [check["name"] for check in burnish("doctor", "--json").data["checks"]]
    assert {"Python", "torch", "memory", "disk", "model", "sandbox: namespaces"} <= set(names)


def test_sandbox_run(burnish: Burnish, monkeypatch: pytest.MonkeyPatch) -> None:
    class Piped:
        buffer = io.BytesIO(b"piped")

        def isatty(self) -> bool:
            return False

    monkeypatch.setattr(sys, "stdin", Piped())
    done = burnish("sandbox", "run", "--stdin", "--json", "--", "sh", "-c", "cat; printf '\\033[2J'; exit 3")
    assert done.code == 3 and done.data["stdout"] == "piped\x1b[2J" and done.data["reason"] is None
    told = burnish("sandbox", "run", "--wall", 0.2, "--", "sh", "-c", "printf 'a\\033[2Jb\\n'; sleep 60")
    assert told.code == 1 and told.out == "a\\x1b[2Jb\n" and "ended by the sandbox: wall" in told.err


def test_sandbox_abuse(burnish: Burnish, monkeypatch: pytest.MonkeyPatch) -> None:
    done = burnish("sandbox", "abuse", "new-namespaces", "05-", "--json")
    assert done.code == 0 and done.data["ok"] and done.data["counts"]["held"] == 2
    assert {c["case"] for c in done.data["cases"]} == {"05-NULs-and-escapes", "30-new-namespaces"}
    assert burnish("sandbox", "abuse", "no such case").code == 2
    monkeypatch.setattr(seccomp, "program", lambda: seccomp._ret(seccomp._ALLOW))
    told = burnish("sandbox", "abuse", "new-namespaces", "05-")
    assert told.code == 1 and "1 held, 1 escaped" in told.out and "30-new-namespaces" in told.out


def test_log_verify(burnish: Burnish, copied: Path) -> None:
    whole = burnish("log", "verify", copied, "--json")
    assert whole.code == 0 and whole.data["ok"] and whole.data["heads"] > 0
    log = copied / "events.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join([*lines[:4], lines[4].replace(b'"kind":"', b'"kind":"x', 1), *lines[5:]]))
    edited = burnish("log", "verify", copied)
    assert edited.code == 1 and "line 5 was edited" in edited.out
    log.write_bytes(b"".join(lines[:5]))
    cut = burnish("log", "verify", copied)
    assert cut.code == 1 and "the tail was cut" in cut.out
    assert burnish("log", "verify", log).code == 0  # the file alone cannot know
