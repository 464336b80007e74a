"""The abuse corpus on this machine's sandbox; and that the corpus itself can fail.

Run as root and, by `test_lifecycle`, again as an ordinary user.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

import pytest

from burnish.sandbox import LocalSandbox, LocalSandboxes, bubblewrap, seccomp
from burnish.sandbox.abuse.case import Case, Ground, check
from burnish.sandbox.abuse.corpus import CASES, Verdict, run_case
from burnish.sandbox.image import find_step
from burnish.sandbox.lease import state_directory
from burnish.types import Limits

ROOT = os.geteuid() == 0
STEP = find_step(state_directory()) is not None


def names(cases: tuple[Case, ...]) -> list[str]:
    return [case.id for case in cases]


@pytest.mark.parametrize("case", CASES, ids=names(CASES))
async def test_every_case_holds(sandboxes: LocalSandboxes, case: Case) -> None:
    verdict = await run_case(case, sandboxes)
    here = {"": True, "root": ROOT, "Landlock": STEP}[case.needs]
    expected = "held" if here else "does not apply"
    assert verdict.outcome == expected, verdict.seen
    assert verdict.seen


def test_the_corpus_is_large_and_its_names_are_unique() -> None:
    assert len(CASES) >= 60
    assert len(set(names(CASES))) == len(CASES)
    assert {case.number for case in CASES} >= set(range(1, 35)) - {4, 11}


async def attempt(sandboxes: LocalSandboxes, what: Callable[[Ground], object]) -> Verdict:
    async def tried(ground: Ground) -> str:
        result = what(ground)
        if hasattr(result, "__await__"):
            result = await result
        return str(result)

    return await run_case(Case(99, "made up", "nothing", tried), sandboxes)


async def test_a_case_that_is_not_stopped_has_escaped(sandboxes: LocalSandboxes) -> None:
    verdict = await attempt(sandboxes, lambda _: check(False, "it went through"))
    assert (verdict.outcome, verdict.seen) == ("escaped", "it went through")
    verdict = await attempt(sandboxes, lambda ground: ground.sandbox.read("not there"))
    assert verdict.outcome == "escaped"


def instead(monkeypatch: pytest.MonkeyPatch, part: str, *others: str) -> None:
    walls = bubblewrap._walls
    monkeypatch.setattr(
        bubblewrap,
        "_walls",
        lambda image: tuple(p for w in walls(image) for p in (others if w == part else (w,))),
    )


async def escaped(sandboxes: LocalSandboxes, *tried: str) -> set[str]:
    """Of these cases. Only such are ever tried without a wall as do no harm when they get through."""
    cases = [case for case in CASES if case.name in tried]
    assert len(cases) == len(tried)
    return {case.name for case in cases if (await run_case(case, sandboxes)).outcome == "escaped"}


async def test_without_the_filter_the_corpus_sees_it(
    sandboxes: LocalSandboxes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seccomp, "program", lambda: seccomp._ret(seccomp._ALLOW))
    tried = ("new namespaces", "exotic sockets", "memory of nobody", "calls that hide arguments")
    assert await escaped(sandboxes, *tried) == set(tried)


@pytest.mark.parametrize(
    ("kept", "tried"),
    [
        (("user", "ipc", "pid", "uts", "cgroup"), "host sockets"),
        (("user", "ipc", "net", "uts", "cgroup"), "other processes"),
    ],
    ids=["net", "pid"],
)
async def test_without_a_namespace_the_corpus_sees_it(
    sandboxes: LocalSandboxes, monkeypatch: pytest.MonkeyPatch, kept: tuple[str, ...], tried: str
) -> None:
    instead(monkeypatch, "--unshare-all", *[f"--unshare-{name}" for name in kept])
    assert await escaped(sandboxes, tried) == {tried}


@pytest.mark.skipif(not STEP, reason="no Landlock in this kernel, or no C compiler")
async def test_without_landlock_the_corpus_sees_it(
    sandboxes: LocalSandboxes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bubblewrap, "_step", lambda image, view: [])
    assert await escaped(sandboxes, "own kernel files") == {"own kernel files"}


async def test_with_the_hosts_files_the_corpus_sees_it(
    sandboxes: LocalSandboxes, monkeypatch: pytest.MonkeyPatch
) -> None:
    instead(monkeypatch, "--clearenv", "--clearenv", "--ro-bind", "/var", "/var")
    assert await escaped(sandboxes, "host files") == {"host files"}


async def test_with_the_callers_environment_the_corpus_sees_it(
    sandboxes: LocalSandboxes, monkeypatch: pytest.MonkeyPatch
) -> None:
    instead(monkeypatch, "--clearenv", "--setenv", "BURNISH_ABUSE_SECRET", "leaked")
    assert await escaped(sandboxes, "environment and descriptors") == {"environment and descriptors"}


async def test_signals_and_codes_are_told_apart(sandbox: LocalSandbox) -> None:
    for code in (3, 200):
        assert (await sandbox.run(["sh", "-c", f"exit {code}"])).exit == code


async def test_python_inside_is_the_one_outside(sandbox: LocalSandbox) -> None:
    text = "import sys, sqlite3, json, zlib, hashlib, unittest; print(sys.version_info[:3])"
    result = await sandbox.run(["python3", "-c", text], limits=Limits(wall_s=60))
    assert result.stdout.decode().strip() == str(tuple(sys.version_info[:3]))
