"""What hostile programs try, each of which must end in a typed result with nothing left running.

Numbered as in the abuse corpus of docs/sandbox.md. The `sandbox` fixture asserts that no process survives.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import sys
from pathlib import Path

import pytest

from burnish.sandbox import LocalSandbox, LocalSandboxes
from burnish.sandbox.execution import DRAIN
from burnish.types import Limits, Result
from tests.sandbox.conftest import descendants, spawner_of

SHORT = Limits(wall_s=0.3)
LONG = Limits(wall_s=60, cpu_s=60)

MIB = 1 << 20


async def shell(sandbox: LocalSandbox, text: str, limits: Limits = LONG) -> Result:
    return await sandbox.run(["sh", "-c", text], limits=limits)


async def python(sandbox: LocalSandbox, text: str, limits: Limits = LONG) -> Result:
    return await sandbox.run(["python3", "-c", text], limits=limits)


SYSCALL = "import ctypes; c = ctypes.CDLL(None, use_errno=True)\n"


async def test_01_fork_bomb_ends_and_spares_siblings(
    sandboxes: LocalSandboxes, sandbox: LocalSandbox
) -> None:
    async with await sandboxes.open() as sibling:
        bomb = python(sandbox, "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass", LONG)
        ended, beside = await asyncio.gather(
            bomb, shell(sibling, "for i in 1 2 3; do /bin/true; done; echo ok")
        )
    assert (ended.exit, ended.reason) == (None, "processes")
    assert (beside.exit, beside.stdout) == (0, b"ok\n")


async def test_02_output_flood_is_drained_then_ended(sandbox: LocalSandbox) -> None:
    result = await shell(sandbox, "echo first; yes | head -c 5G")
    assert result.reason == "output"
    assert result.stdout.startswith(b"first\ny\n")
    assert b"bytes left out" in result.stdout
    assert len(result.stdout) < (64 << 10) + 100
    assert result.dropped > DRAIN - (64 << 10)


async def test_03_one_huge_line(sandbox: LocalSandbox) -> None:
    result = await shell(sandbox, "head -c 200M /dev/zero | tr '\\0' a; echo; echo end")
    assert (result.exit, result.reason) == (0, None)
    assert result.stdout.startswith(b"aaa") and result.stdout.endswith(b"a\nend\n")
    assert result.dropped == 200 * MIB + 5 - (64 << 10)


async def test_05_bytes_are_kept(sandbox: LocalSandbox) -> None:
    result = await shell(sandbox, r"printf 'a\0b\033[2J\377'; printf '\0' >&2")
    assert (result.stdout, result.stderr) == (b"a\0b\033[2J\xff", b"\0")


async def test_06_background_child_that_holds_stdout(sandbox: LocalSandbox) -> None:
    result = await shell(sandbox, "sleep 999 & echo hi")
    assert (result.stdout, result.exit, result.reason) == (b"hi\n", 0, None)


@pytest.mark.parametrize(
    "text",
    [
        "echo x; sleep 999 & wait",
        "setsid setsid sleep 999 & echo x; sleep 999",
        "echo x; trap '' TERM INT HUP; while :; do :; done",
        "echo x; (exec >&- 2>&-; setsid sh -c 'sleep 999 & sleep 999') & sleep 999",
    ],
    ids=["07-orphan", "08-double-fork", "09-ignores-term", "10-closed-outputs"],
)
async def test_07_to_10_timeouts_end_everything_and_keep_output(sandbox: LocalSandbox, text: str) -> None:
    result = await shell(sandbox, text, SHORT)
    assert (result.stdout, result.exit, result.reason) == (b"x\n", None, "wall")


async def test_12_memory_of_all_children_together(sandbox: LocalSandbox) -> None:
    text = "import os, time\nfor _ in range(8):\n  if not os.fork():\n    x = b'x' * (60 << 20)"
    text += "\n    time.sleep(999)\nos.wait()"
    result = await python(sandbox, text, Limits(wall_s=60, memory=256 * MIB))
    assert (result.exit, result.reason) == (None, "memory")
    assert result.peak_memory > 256 * MIB


async def test_12_memory_of_one_process(sandbox: LocalSandbox) -> None:
    result = await python(sandbox, "x = bytearray(1 << 34)")
    assert result.exit == 1
    assert b"MemoryError" in result.stderr


@pytest.mark.parametrize("call", ["memfd_create(b'x', 0)", "shmget(0, 1 << 30, 0o1600)", "msgget(0, 0o1600)"])
async def test_12_memory_that_belongs_to_no_process_is_refused(sandbox: LocalSandbox, call: str) -> None:
    result = await python(sandbox, f"{SYSCALL}print(c.{call}, ctypes.get_errno())")
    assert result.stdout == f"-1 {errno.EPERM}\n".encode()


@pytest.mark.parametrize("directory", ["/tmp", "/dev/shm"])
async def test_13_temporary_filesystems_are_sized(sandbox: LocalSandbox, directory: str) -> None:
    result = await shell(sandbox, f"dd if=/dev/zero of={directory}/x bs=64k", Limits(wall_s=60, disk=2 * MIB))
    assert result.exit == 1
    assert b"No space left" in result.stderr


async def test_13_nothing_else_can_be_written(sandbox: LocalSandbox) -> None:
    text = "for d in / /dev /etc /usr /opt /proc /proc/sys/kernel; do echo x > $d/new && echo $d; done; true"
    result = await shell(sandbox, text)
    assert (result.stdout, result.exit) == (b"", 0)
    assert result.stderr.count(b"cannot create") == 7


@pytest.mark.parametrize("directory", ["/work", "/tmp"])
async def test_14_inode_fill(sandbox: LocalSandbox, directory: str) -> None:
    text = (
        f"import os\nos.chdir('{directory}')\nos.mknod('x')\ni = 0\nwhile True: i += 1; os.link('x', str(i))"
    )
    result = await python(sandbox, text)
    assert (result.exit, result.reason) == (None, "disk")


async def test_15_one_file_too_large(sandbox: LocalSandbox) -> None:
    assert (await shell(sandbox, "fallocate -l 100G x")).exit != 0
    result = await shell(sandbox, "exec head -c 100M /dev/zero > x")
    assert (result.exit, result.reason) == (None, "file_size")
    assert len(await sandbox.read("x", 1 << 25)) == 16 * MIB


@pytest.mark.parametrize("after", ["", "os.unlink(str(i)); "], ids=["kept", "deleted"])
async def test_15_many_files_too_large_together(sandbox: LocalSandbox, after: str) -> None:
    text = f"""
import os, time
held = []
for i in range(100):
    held.append(os.open(str(i), os.O_CREAT | os.O_RDWR))
    {after}os.write(held[-1], bytes(1 << 20))
time.sleep(999)"""
    result = await python(sandbox, text, Limits(wall_s=60, disk=8 * MIB))
    assert (result.exit, result.reason) == (None, "disk")


async def test_15_disk_is_measured_where_it_is_hard_to_look(sandbox: LocalSandbox) -> None:
    text = """
import os
for _ in range(1500): os.mkdir('aaaa'); os.chdir('aaaa')
open('x', 'w').write('hidden')
"""
    result = await python(sandbox, text)
    assert (result.exit, result.reason) == (None, "disk")


async def test_15_closed_directories_are_looked_into(sandbox: LocalSandbox) -> None:
    result = await shell(sandbox, "mkdir d; echo secret > d/x; chmod 0 d")
    assert result.exit == 0
    assert await sandbox.files() == {"d/x": b"secret\n"}


async def test_18_fifo_is_refused_without_waiting(sandbox: LocalSandbox) -> None:
    await shell(
        sandbox, "mkfifo result.json; mkdir d; python3 -c \"import socket; socket.socket(1).bind('sock')\""
    )
    for path in ("result.json", "d", "sock"):
        with pytest.raises(PermissionError):
            await sandbox.read(path)
        with pytest.raises(PermissionError):
            await sandbox.write(path, b"x")
    assert await sandbox.files() == {}


async def test_19_links_are_refused(sandbox: LocalSandbox) -> None:
    victim = sandbox.path.parent / "victim"
    victim.mkdir(mode=0o755)
    try:
        (victim / "file").write_text("untouched")
        before = (victim / "file").stat()
        await shell(
            sandbox, f"ln -s {victim}/file a; ln -s {victim} b; ln -s ../victim c; mkdir d; ln -s ../d e"
        )
        for path in ("a", "b/file", "c/file", "e/x"):
            with pytest.raises(PermissionError):
                await sandbox.read(path)
            with pytest.raises(PermissionError):
                await sandbox.write(path, b"changed")
        with pytest.raises(PermissionError):
            await sandbox.write("b/new/file", b"")
        assert await sandbox.files() == {}
        assert (victim / "file").read_text() == "untouched"
        assert (victim / "file").stat().st_uid == before.st_uid
        assert [path.name for path in victim.iterdir()] == ["file"]
    finally:
        (victim / "file").unlink()
        victim.rmdir()


async def test_22_environment_and_descriptors_are_clean(
    sandbox: LocalSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BURNISH_TEST_SECRET", "leaked")
    leak = os.open("/etc/hostname", os.O_RDONLY)
    try:
        os.set_inheritable(leak, True)
        text = "import os; print(sorted(os.environ)); print([n for n in range(3, 99) if os.path.islink("
        result = await python(sandbox, text + "f'/proc/self/fd/{n}')])")
    finally:
        os.close(leak)
    names, opened = result.stdout.decode().splitlines()
    assert "SECRET" not in names and "'PATH'" in names
    assert opened == "[]"


async def test_24_terminal_injection_is_refused(sandbox: LocalSandbox) -> None:
    calls = "".join(
        f"print(c.ioctl(0, ctypes.c_ulong({n}), b'x'), ctypes.get_errno())\n" for n in (0x5412, 0x100005412)
    )
    result = await python(
        sandbox, SYSCALL + calls + "import os\ntry: os.open('/dev/tty', 2)\nexcept OSError: print('no')"
    )
    assert result.stdout == f"-1 {errno.EPERM}\n-1 {errno.EPERM}\nno\n".encode()


async def test_25_signals_do_not_leave(sandboxes: LocalSandboxes, sandbox: LocalSandbox) -> None:
    text = f"""
import os
for pid in ({os.getpid()}, {spawner_of(sandboxes)}, -1):
    try:
        os.kill(pid, 9)
    except OSError as error:
        print(error.errno)
"""
    result = await python(sandbox, text)
    assert result.stdout.decode().split() == [str(errno.ESRCH)] * 3
    assert (await shell(sandbox, "sleep 999 & sleep 999 & kill -9 -1; echo alive")).stdout == b"alive\n"


async def test_28_host_sockets_are_out_of_reach(sandbox: LocalSandbox) -> None:
    name = f"\0burnish-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as abstract, socket.socket() as loopback:
        abstract.bind(name)
        abstract.listen()
        loopback.bind(("127.0.0.1", 0))
        loopback.listen()
        text = f"""
import os, socket
for make, address in (
    (lambda: socket.socket(socket.AF_UNIX), {name!r}),
    (lambda: socket.socket(), {loopback.getsockname()!r}),
    (lambda: socket.socket(), ("169.254.169.254", 80)),
    (lambda: socket.socket(40), (2, 1)),
    (lambda: socket.socket(17), None),
):
    try:
        make().connect(address)
        print("connected")
    except OSError as error:
        print(error.errno)
print([p for p in ("/run", "/var", "/home", "/root", "/sys", "/boot", "/mnt") if os.path.exists(p)])
"""
        result = await python(sandbox, text)
    expected = [
        errno.ECONNREFUSED,
        errno.ECONNREFUSED,
        errno.ENETUNREACH,
        errno.EAFNOSUPPORT,
        errno.EAFNOSUPPORT,
    ]
    assert result.stdout.decode().split() == [*map(str, expected), "[]"]


async def test_30_privileged_system_calls_are_refused(sandbox: LocalSandbox) -> None:
    calls = (
        "unshare(0x10000000)",
        "mount(b'x', b'/tmp', b'tmpfs', 0, None)",
        "ptrace(0, 0, 0, 0)",
        "syscall(250 if X else 219, 0, -3, 0)",  # keyctl
        "syscall(321 if X else 280, 0, 0, 0)",  # bpf
        "setns(0, 0)",
        "chroot(b'/tmp')",
        "syscall(56 if X else 220, 0x10000011, 0, 0, 0, 0)",  # clone into a new user namespace
        "syscall(298 if X else 241, 0, 0, 0, 0, 0)",  # perf_event_open
        "syscall(304 if X else 265, 0, 0, 0)",  # open_by_handle_at
    )
    text = SYSCALL + "import os\nX = os.uname().machine == 'x86_64'\n"
    text += "".join(f"print(c.{call}, ctypes.get_errno())\n" for call in calls)
    text += "print(c.syscall(435, 0, 0), ctypes.get_errno())\n"  # clone3: absent, so that clone is used
    result = await python(sandbox, text)
    assert result.stdout.decode().splitlines() == [f"-1 {errno.EPERM}"] * len(calls) + [f"-1 {errno.ENOSYS}"]
    assert (await shell(sandbox, "unshare -Ur true")).exit == 1


async def test_cpu_of_one_and_of_many(sandbox: LocalSandbox) -> None:
    limits = Limits(wall_s=60, cpu_s=0.2)
    assert (await shell(sandbox, "while :; do :; done", limits)).reason == "cpu"
    text = "for i in 1 2 3 4; do (while :; do :; done) & done; wait"
    result = await shell(sandbox, text, limits)
    assert (result.exit, result.reason) == (None, "cpu")
    assert result.cpu_s >= 0.2


async def test_signals_are_named(sandbox: LocalSandbox) -> None:
    for text in ("kill -SEGV $$", "kill -KILL $$"):
        result = await shell(sandbox, text)
        assert (result.exit, result.reason) == (None, "signal")
    assert (await shell(sandbox, "exit 3")).exit == 3
    assert (await shell(sandbox, "exit 200")).exit == 200


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give each sandbox its own uid")
async def test_each_sandbox_has_its_own_uid_and_is_closed_to_others(sandboxes: LocalSandboxes) -> None:
    async with await sandboxes.open() as one, await sandboxes.open() as other:
        first, second = one.path.stat(), other.path.stat()
        assert 0 not in (first.st_uid, second.st_uid)
        assert first.st_uid != second.st_uid
        assert first.st_mode & 0o777 == 0o700
        await one.write("d/x", b"")
        assert (one.path / "d/x").stat().st_uid == (one.path / "d").stat().st_uid == first.st_uid
        assert (await python(one, "import os; print(os.stat('d/x').st_uid)")).stdout == b"1000\n"


async def test_bubblewrap_itself_is_neither_root_nor_capable(
    sandboxes: LocalSandboxes, sandbox: LocalSandbox
) -> None:
    await shell(sandbox, "mkfifo begun end")
    task = asyncio.create_task(shell(sandbox, "echo > begun; read x < end"))
    await shell(sandbox, "read x < begun")
    statuses = [Path(f"/proc/{pid}/status").read_text() for pid in descendants(spawner_of(sandboxes))]
    await asyncio.gather(task, shell(sandbox, "echo > end"))
    assert len(statuses) >= 3
    owner = str(sandbox.path.stat().st_uid) if os.geteuid() == 0 else str(os.geteuid())
    for status in statuses:
        fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        assert fields["Uid"].split() == fields["Gid"].split() == [owner] * 4 != ["0"] * 4
        assert fields["Groups"].split() in ([], [owner])
        assert fields["NoNewPrivs"] == "1"
    outer = dict(line.split(":\t", 1) for line in statuses[0].splitlines() if ":\t" in line)
    assert int(outer["CapPrm"], 16) == int(outer["CapEff"], 16) == int(outer["CapInh"], 16) == 0


async def test_python_inside_is_the_one_outside(sandbox: LocalSandbox) -> None:
    result = await python(
        sandbox, "import sys, sqlite3, json, zlib, hashlib, unittest; print(sys.version_info[:3])"
    )
    assert result.stdout.decode().strip() == str(tuple(sys.version_info[:3]))
