"""What tries to trick those who copy files in and out, and what outlives those who should clear up.

What this file is: hostile paths, links, devices and names; and the death of the supervisor.
What it is not: attempts from within the walls; see `escapes` and `quotas`.
"""

from __future__ import annotations

import asyncio
import os
import select
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from burnish.sandbox.abuse.case import Case, Ground, check
from burnish.sandbox.image import find_bwrap
from burnish.sandbox.layers import MAX_DEPTH
from burnish.sandbox.lease import Lease, state_directory
from burnish.types import UsageError

_DEATH_S = 60.0


async def _refused(ground: Ground, paths: Iterable[str]) -> None:
    for path in paths:
        for work in (ground.sandbox.read(path), ground.sandbox.write(path, b"changed")):
            try:
                await work
            except PermissionError:
                continue
            check(False, f"{path!r} was taken for a file")


async def not_a_file(ground: Ground) -> str:
    await ground.shell(
        "mkfifo result.json; mkdir d; python3 -c \"import socket; socket.socket(1).bind('sock')\""
    )
    await _refused(ground, ("result.json", "d", "sock"))
    check(await ground.sandbox.files() == {}, "listed")
    return "refused without waiting"


async def links(ground: Ground) -> str:
    victim = ground.sandbox.path.parent / "victim"
    victim.mkdir(mode=0o755)
    try:
        (victim / "file").write_text("untouched")
        before = (victim / "file").stat()
        await ground.shell(
            f"ln -s {victim}/file a; ln -s {victim} b; ln -s ../victim c; mkdir d; ln -s ../d e; "
            "ln -s /proc/self/root f; ln -s /etc/passwd g"
        )
        await _refused(ground, ("a", "b/file", "b/new/file", "c/file", "e/x", "f/etc/passwd", "g"))
        check(await ground.sandbox.files() == {}, "listed")
        after = (victim / "file").stat()
        same = (before.st_uid, before.st_mtime_ns, before.st_size) == (
            after.st_uid,
            after.st_mtime_ns,
            after.st_size,
        )
        check(same and [path.name for path in victim.iterdir()] == ["file"], "the host's file was touched")
    finally:
        shutil.rmtree(victim)
    return "refused, read and written"


async def paths_out(ground: Ground) -> str:
    await _refused(ground, ("/etc/passwd", "../x", "a/../../x", "", ".", "a\0b", "..", "/"))
    return "refused"


async def swapped_while_read(ground: Ground) -> str:
    """A file that turns into a link and back, over and over, while it is read and written from outside."""
    victim = ground.sandbox.path.parent / "victim"
    victim.mkdir(mode=0o755)
    (victim / "file").write_text("untouched")
    text = (
        "import os\nopen('real', 'w').write('mine')\n"
        f"os.symlink('{victim}/file', 'link')\nopen('begun', 'w').close()\n"
        "while True:\n    os.link('real', 't'); os.rename('t', 'x')\n    os.rename('link', 'x')\n"
        f"    os.symlink('{victim}/file', 'link')\n"
    )
    await ground.shell("mkfifo begun")
    task = asyncio.ensure_future(ground.python(text))
    try:
        await ground.shell("cat begun")
        for _ in range(300):
            try:
                check(b"untouched" not in await ground.sandbox.read("x"), "read through a link")
                await ground.sandbox.write("x", b"mine")
            except (PermissionError, FileNotFoundError):
                pass
            await asyncio.sleep(0)
        check((victim / "file").read_text() == "untouched", "written through a link")
    finally:
        task.cancel()
        await asyncio.wait([task])
        shutil.rmtree(victim)
    return "never followed"


async def closed_directories(ground: Ground) -> str:
    await ground.shell("mkdir d; echo secret > d/x; chmod 0 d")
    check(await ground.sandbox.files() == {"d/x": b"secret\n"}, await ground.sandbox.files())
    return "looked into"


async def odd_names(ground: Ground) -> str:
    text = "import os\nfor name in (b'\\xff\\xfe', b'new\\nline', b'-rf', b'\\x1b[2J', b' '):\n"
    text += "    open(name, 'wb').write(b'x')"
    check((await ground.python(text)).exit == 0, "could not be made")
    found = await ground.sandbox.files()
    check(len(found) == 5 and os.fsdecode(b"\xff\xfe") in found, list(found))
    return "five files, read back by name"


async def deep_tree(ground: Ground) -> str:
    """Deeper than any path can be: nobody may recurse, and clearing up must still succeed."""
    result = await ground.python(
        "import os\nfor _ in range(3000): os.mkdir('a'); os.chdir('a')\n" + "os.mkdir('end')"
    )
    check(result.reason == "disk" and await ground.sandbox.files() == {}, result)
    return f"ended beyond {MAX_DEPTH} levels"


async def large_argument(ground: Ground) -> str:
    for argv in (["echo", "a\0b"], ["echo", "x" * (1 << 20)], []):
        try:
            await ground.sandbox.run(argv)
        except UsageError:
            continue
        check(False, "taken for a command")
    return "refused before anything started"


_VICTIM = """
import asyncio, sys
from burnish.sandbox import LocalSandboxes
from burnish.types import Limits

async def main():
    sandboxes = LocalSandboxes()
    sandbox = await sandboxes.open()
    await sandbox.write("left/behind", b"x")
    fork = await (await sandbox.snapshot()).fork()
    text = "setsid sleep 999 & echo > begun; exec sleep 999"
    task = asyncio.create_task(fork.run(["sh", "-c", text], limits=Limits(wall_s=900)))
    while "begun" not in await fork.files():
        await asyncio.sleep(0.01)
    print(sandboxes.spawner, fork.path.parent, flush=True)
    await task

asyncio.run(main())
"""


async def killed_supervisor(ground: Ground) -> str:
    """Another process with sandboxes of its own dies by SIGKILL: nothing runs on, and the next lease clears up."""
    return await asyncio.to_thread(_kill_a_supervisor)


def _kill_a_supervisor() -> str:
    with subprocess.Popen(
        [sys.executable, "-c", _VICTIM], stdout=subprocess.PIPE, env=_environment()
    ) as victim:
        assert victim.stdout is not None
        spawner, directory = victim.stdout.readline().decode().split()
        below = [int(spawner), *descendants(int(spawner))]
        handles = [os.pidfd_open(pid) for pid in below]
        victim.kill()
    for handle in handles:
        ended = bool(select.select([handle], [], [], _DEATH_S)[0])
        os.close(handle)
        check(ended, "a process outlived its supervisor")
    check(len(below) >= 4 and list(Path(directory).iterdir()) != [], (below, directory))
    Lease(None).release()  # as every next process takes one
    check(not Path(directory).exists(), f"{directory} is still there")
    return f"{len(below)} processes ended, directory removed"


_OPEN = """
import asyncio
from burnish.sandbox import LocalSandboxes
from burnish.types import BurnishError
try:
    asyncio.run(LocalSandboxes().open())
    print("opened")
except BurnishError as error:
    print(str(error).splitlines()[0])
"""


async def missing_wall(ground: Ground) -> str:
    """Where there are no namespaces to be had, we run nothing, and say why."""
    return await asyncio.to_thread(_open_without_namespaces)


def _open_without_namespaces() -> str:
    crippled = [
        "--unshare-user",
        "--dev-bind",
        "/",
        "/",
        "--uid",
        "1000",
        "--gid",
        "1000",
        "--disable-userns",
    ]
    crippled += ["--tmpfs", "/var/tmp"]  # it may not be this user's, as the namespace has it
    if sys.base_prefix.startswith("/var/tmp/"):
        crippled += ["--ro-bind", sys.base_prefix, sys.base_prefix]
    command = [find_bwrap(state_directory()), *crippled, "--", sys.executable, "-c", _OPEN]
    answer = subprocess.run(command, capture_output=True, env=_environment(), timeout=60)
    said = answer.stdout.decode(errors="replace").strip()
    check("cannot isolate" in said and "runs none" in said, said or answer.stderr)
    return "runs nothing, and says why"


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def descendants(pid: int) -> list[int]:
    """All living processes below `pid`."""
    try:
        threads = list(Path(f"/proc/{pid}/task").iterdir())
        children = [int(child) for thread in threads for child in (thread / "children").read_text().split()]
    except OSError:
        return []
    return [*children, *(below for child in children for below in descendants(child))]


CASES = (
    Case(18, "a FIFO for a file", "copy-out beneath the workspace", not_a_file),
    Case(19, "links for files", "copy-out beneath the workspace", links),
    Case(19, "paths that lead out", "copy-out beneath the workspace", paths_out),
    Case(19, "odd names", "copy-out beneath the workspace", odd_names),
    Case(19, "closed directories", "copy-out beneath the workspace", closed_directories),
    Case(20, "deeper than a path", "entry limit", deep_tree),
    Case(21, "swapped while read", "copy-out beneath the workspace", swapped_while_read),
    Case(23, "arguments that are none", "checked before the start", large_argument),
    Case(33, "killed supervisor", "parent-death signal and lease", killed_supervisor),
    Case(34, "no namespaces", "fail closed", missing_wall),
)  # fmt: skip
