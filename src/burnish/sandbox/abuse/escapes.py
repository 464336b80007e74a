"""What tries to get out: to the host's processes, kernel, network, terminal and files, or to a neighbour.

What this file is: the cases that a wall must refuse.
What it is not: attempts to take too much (see `quotas`) or to trick who copies files (see `copies`).
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from pathlib import Path

from burnish.sandbox.abuse.case import Attempt, C, Case, Ground, calls, check, ended_by, failed, printed

_SECRET = "BURNISH_ABUSE_SECRET"


async def environment(ground: Ground) -> str:
    """A variable and an inheritable descriptor of ours must not be found inside."""
    leak = os.open("/etc/hostname", os.O_RDONLY)
    os.environ[_SECRET] = "leaked"
    try:
        os.set_inheritable(leak, True)
        text = "import os; print(sorted(os.environ)); print([n for n in range(3, 99) if os.path.islink("
        result = await ground.python(text + "f'/proc/self/fd/{n}')])")
    finally:
        del os.environ[_SECRET]
        os.close(leak)
    names, opened = result.stdout.decode().splitlines()
    check(_SECRET not in names and "'PATH'" in names and opened == "[]", (names, opened))
    return "clean"


async def terminal(ground: Ground) -> str:
    text = "".join(
        f"print(c.ioctl(0, ctypes.c_ulong({number}), b'x'), ctypes.get_errno())\n"
        for number in (0x5412, 0x100005412, 0x541C)
    )
    text = C + text + "try: os.open('/dev/tty', 2)\nexcept OSError as error: print(error.errno)"
    return failed(await ground.python(text), *[errno.EPERM] * 3, errno.ENOENT)


async def signals_out(ground: Ground) -> str:
    text = "import os\n"
    text += f"for pid in ({os.getpid()}, {ground.spawner}, -1):\n"
    text += "    try: os.kill(pid, 9)\n    except OSError as error: print(error.errno)"
    return failed(await ground.python(text), *[errno.ESRCH] * 3)


async def signals_all(ground: Ground) -> str:
    printed(await ground.shell("sleep 999 & sleep 999 & kill -9 -1; echo alive"), "alive")
    return "none reached anybody"


async def host_sockets(ground: Ground) -> str:
    name = f"\0burnish-abuse-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as abstract, socket.socket() as loopback:
        abstract.bind(name)
        abstract.listen()
        loopback.bind(("127.0.0.1", 0))
        loopback.listen()
        text = "import socket\nfor family, address in "
        text += f"((1, {name!r}), (2, {loopback.getsockname()!r})):\n"
        text += "    try: socket.socket(family).connect(address)\n"
        text += "    except OSError as error: print(error.errno)"
        result = await ground.python(text)
    return failed(result, *[errno.ECONNREFUSED] * 2)


async def network(ground: Ground) -> str:
    text = "import socket\n"
    text += "for host in ('169.254.169.254', '10.0.0.1', '1.1.1.1'):\n"
    text += (
        "    try: socket.create_connection((host, 80), 5)\n    except OSError as error: print(error.errno)\n"
    )
    text += "try: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('8.8.8.8', 53))\n"
    text += "except OSError as error: print(error.errno)"
    return failed(await ground.python(text), *[errno.ENETUNREACH] * 4)


async def names(ground: Ground) -> str:
    result = await ground.shell("getent hosts secret.evil.test; getent hosts localhost | wc -l")
    printed(result, 1)
    return "nobody to ask"


async def exotic_sockets(ground: Ground) -> str:
    families = (40, 17, 29, 31, 38)  # vsock, packet, can, bluetooth, alg
    text = f"import socket\nfor family in {families}:\n    try: socket.socket(family, 3 if family == 17 else 5)\n"
    result = await ground.python(text + "    except OSError as error: print(error.errno)")
    return failed(result, *[errno.EAFNOSUPPORT] * len(families))


async def host_files(ground: Ground) -> str:
    places = "/run /var /home /root /sys /boot /mnt /srv /etc/shadow /etc/ssh /dev/kmsg /dev/mem /dev/sda"
    result = await ground.shell(f"for p in {places}; do [ -e $p ] && echo $p; done; true")
    return printed(result) or "not in view"


def refused(*names: str) -> Attempt:
    async def attempt(ground: Ground) -> str:
        return failed(await ground.python(calls(*names)), *[errno.EPERM] * len(names))

    return attempt


async def newer_calls(ground: Ground) -> str:
    """Calls that hide their arguments from the filter are answered as by a kernel that lacks them."""
    names = (
        "syscall(435, 0, 0)",
        "syscall(425, 1, 0)",
        "syscall(426, 0, 0, 0, 0, 0)",
        "syscall(427, 0, 0, 0, 0)",
    )
    return failed(await ground.python(calls(*names)), *[errno.ENOSYS] * len(names))


async def other_tables(ground: Ground) -> str:
    """x86-64 has two further tables of system calls, in which every number means something else."""
    if os.uname().machine != "x86_64":
        return "this architecture has one table"
    text = C + "print(c.syscall(0x40000000 + 101, 0, 0, 0, 0), ctypes.get_errno(), flush=True)\nimport mmap\n"
    text += "page = mmap.mmap(-1, 4096, prot=7)\npage.write(bytes.fromhex('b814000000cd80c3'))\n"
    text += (
        "print('called', ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))())"
    )
    result = await ground.python(text)
    check(result.stdout == f"-1 {errno.ENOSYS}\n".encode(), result)
    return ended_by(result, "signal")


async def setuid_program(ground: Ground) -> str:
    text = "cp /usr/bin/id . && chmod 6755 id && ./id -u; grep -E 'CapEff|NoNewPrivs' /proc/self/status"
    printed(await ground.shell(text), 1000, "CapEff:\t0000000000000000", "NoNewPrivs:\t1")
    return "gained nothing"


async def kernel_settings(ground: Ground) -> str:
    places = "kernel/core_pattern kernel/modprobe kernel/sysrq vm/overcommit_memory fs/file-max"
    text = f"for f in {places}; do [ -w /proc/sys/$f ] && (echo 0 > /proc/sys/$f) 2>&1 && echo $f; done; true"
    result = await ground.shell(text)
    check(result.exit == 0 and not any(n in result.stdout.decode().split() for n in places.split()), result)
    return "none can be written"


async def own_kernel_files(ground: Ground) -> str:
    """What the mount of /proc would let a process write of its own."""
    names = "oom_score_adj comm timerslack_ns coredump_filter"
    result = await ground.shell(
        f"for f in {names}; do echo 0 > /proc/self/$f && echo $f; done 2>/dev/null; true"
    )
    printed(result)
    return "EACCES"


async def other_processes(ground: Ground) -> str:
    text = "ls /proc | grep -c '^[0-9]'; tr '\\0' '\\n' < /proc/1/environ 2>/dev/null | wc -l"
    result = await ground.shell(text)
    seen = [int(line) for line in result.stdout.split()]
    check(len(seen) == 2 and seen[0] <= 8 and seen[1] <= 16, result)
    return f"{seen[0]} processes in view, all its own"


async def raised_limits(ground: Ground) -> str:
    text = "import resource as r\nfor n in (r.RLIMIT_AS, r.RLIMIT_NPROC, r.RLIMIT_FSIZE, r.RLIMIT_NOFILE):\n"
    text += "    try: r.setrlimit(n, (r.RLIM_INFINITY, r.RLIM_INFINITY)); print('raised', n)\n"
    text += "    except (OSError, ValueError): print('no')"
    printed(await ground.python(text), *["no"] * 4)
    return "refused"


async def devices(ground: Ground) -> str:
    text = "import os\nfor kind in (0o020000, 0o060000):\n    try: os.mknod('d', kind | 0o600, os.makedev(1, 1))\n"
    printed(await ground.python(text + "    except PermissionError: print('no')"), "no", "no")
    return "refused"


async def neighbour(ground: Ground) -> str:
    """Also where both run as one user: nothing of the other is in view, and its uid helps nobody inside."""
    async with await ground.sandboxes.open() as other:
        await other.write("secret", b"of a neighbour")
        text = f"cat {other.path}/secret /proc/*/root{other.path}/secret; ls /var/tmp /tmp; true"
        result = await ground.shell(text)
        check(b"of a neighbour" not in result.stdout, result)
        check(await other.files() == {"secret": b"of a neighbour"}, "changed")
    return "out of view"


async def forked_sibling(ground: Ground) -> str:
    await ground.sandbox.write("shared", b"as it was")
    async with (
        await ground.sandbox.snapshot() as snapshot,
        await snapshot.fork() as one,
        await snapshot.fork() as two,
    ):
        await one.run(["sh", "-c", "echo changed > shared; echo planted > new; rm -rf .[!.]*"])
        printed(await two.run(["sh", "-c", "cat shared; echo; ls"]), "as it was", "shared")
        check(await ground.sandbox.files() == {"shared": b"as it was"}, "the origin changed")
    return "each has its own"


async def planted_for_the_grader(ground: Ground) -> str:
    """What an agent plants must not reach the verifier, which works in a fork of what was there before it."""
    await ground.sandbox.write("code.py", b"def answer(): return 0\n")
    await ground.sandbox.write("test_code.py", b"import code_under_test\n")
    async with await ground.sandbox.snapshot() as pristine:
        plants = "mkdir -p bin; printf '#!/bin/sh\\necho passed\\n' > bin/python3; chmod +x bin/python3; "
        plants += "for f in sitecustomize.py usercustomize.py conftest.py pytest.py; do echo 'print(1)' > $f; done; "
        plants += "echo 1.0 > reward.txt; echo 'def answer(): return 42' > code.py"
        await ground.shell(plants)
        async with await pristine.fork() as grader:
            await grader.write("code.py", await ground.sandbox.read("code.py"))
            listed = await grader.run(["sh", "-c", "ls -a; command -v python3"])
            check(not set(listed.stdout.decode().split()) & {"bin", "conftest.py", "reward.txt"}, listed)
            result = await grader.run(
                ["python3", "-c", "import sys; sys.path.insert(0, '.')\nfrom code import *"]
            )
            check(b"1\n" not in result.stdout, result)
    return "only the file asked for came along"


async def identity(ground: Ground) -> str:
    """bubblewrap itself, seen from outside, is neither root nor capable."""
    await ground.shell("mkfifo begun end")
    task = asyncio.ensure_future(ground.shell("echo > begun; read x < end"))
    await ground.shell("read x < begun")
    children = Path(f"/proc/{ground.spawner}/task/{ground.spawner}/children").read_text().split()
    seen = [dict(_fields(Path(f"/proc/{pid}/status").read_text())) for pid in children]
    await ground.shell("echo > end")
    await task
    owner = str(ground.sandbox.path.stat().st_uid)
    check(bool(seen) and owner != "0", owner)
    for status in seen:
        check(status["Uid"].split() == [owner] * 4 and status["NoNewPrivs"] == "1", status)
        check(int(status["CapPrm"], 16) == int(status["CapEff"], 16) == 0, status)
    return f"host uid {owner}, no capabilities"


async def own_uid(ground: Ground) -> str:
    async with await ground.sandboxes.open() as other:
        one, two = ground.sandbox.path.stat(), other.path.stat()
    check(0 not in (one.st_uid, two.st_uid) and one.st_uid != two.st_uid, (one.st_uid, two.st_uid))
    check(one.st_mode & 0o777 == 0o700, oct(one.st_mode))
    return f"{one.st_uid} and {two.st_uid}"


def _fields(status: str) -> list[list[str]]:
    return [line.split(":\t", 1) for line in status.splitlines() if ":\t" in line]


CASES = (
    Case(22, "environment and descriptors", "clean environment", environment),
    Case(24, "terminal injection", "system call filter", terminal),
    Case(25, "signals to the host", "pid namespace", signals_out),
    Case(25, "signals to all", "pid namespace", signals_all),
    Case(26, "metadata and loopback", "network namespace", network),
    Case(27, "names", "no resolver", names),
    Case(28, "host sockets", "network namespace", host_sockets),
    Case(28, "exotic sockets", "system call filter", exotic_sockets),
    Case(29, "host files", "mount namespace", host_files),
    Case(29, "a neighbour's files", "mount namespace", neighbour),
    Case(29, "a forked sibling's files", "overlay", forked_sibling),
    Case(30, "new namespaces", "system call filter", refused(
        "unshare(0x10000000)", "setns(0, 0)", "syscall(56 if X else 220, 0x10000011, 0, 0, 0, 0)")),
    Case(30, "mounts", "system call filter", refused(
        "mount(b'x', b'/tmp', b'tmpfs', 0, None)", "umount2(b'/proc', 2)", "chroot(b'/tmp')",
        "syscall(155 if X else 41, b'.', b'.')", "syscall(428, -100, b'/', 1)", "syscall(430, b'tmpfs', 0)")),
    Case(30, "tracing", "system call filter", refused(
        "ptrace(0, 0, 0, 0)", "syscall(310 if X else 270, 1, 0, 0, 0, 0, 0)",
        "syscall(298 if X else 241, 0, 0, 0, 0, 0)", "syscall(312 if X else 272, 1, 1, 0, 0, 0)")),
    Case(30, "key rings and bpf", "system call filter", refused(
        "syscall(250 if X else 219, 0, -3, 0)", "syscall(321 if X else 280, 0, 0, 0)",
        "syscall(323 if X else 282, 0)")),
    Case(30, "files by handle", "system call filter", refused("syscall(304 if X else 265, 0, 0, 0)")),
    Case(30, "calls that hide arguments", "system call filter", newer_calls),
    Case(30, "other call tables", "system call filter", other_tables),
    Case(30, "set-user-id program", "no_new_privs", setuid_program),
    Case(30, "kernel settings", "read-only mounts", kernel_settings),
    Case(30, "own kernel files", "Landlock", own_kernel_files, needs="Landlock"),
    Case(30, "other processes", "pid namespace", other_processes),
    Case(30, "raises its limits", "rlimits", raised_limits),
    Case(30, "makes devices", "no capabilities, Landlock", devices),
    Case(31, "root and capabilities", "dropped user", identity),
    Case(31, "shared user id", "own user id", own_uid, needs="root"),
    Case(32, "plants for the grader", "fork of the pristine snapshot", planted_for_the_grader),
)  # fmt: skip
