"""What takes more than it may: processes, output, time, memory, disk.

What this file is: the cases that a limit must end or refuse, each with its own reason.
What it is not: attempts to get out; see `escapes` and `copies`.
"""

from __future__ import annotations

import asyncio
import errno

from burnish.sandbox.abuse.case import (
    LONG,
    MIB,
    SHORT,
    Attempt,
    Case,
    Ground,
    calls,
    check,
    ended_by,
    failed,
    printed,
)
from burnish.sandbox.execution import DRAIN
from burnish.types import LimitReason, Limits


async def fork_bomb(ground: Ground) -> str:
    bomb = "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass"
    async with await ground.sandboxes.open() as sibling:
        beside = sibling.run(["sh", "-c", "for i in 1 2 3; do /bin/true; done; echo ok"], limits=LONG)
        ended, other = await asyncio.gather(ground.python(bomb), beside)
    printed(other, "ok")
    return ended_by(ended, "processes") + ", a sibling unharmed"


async def threads(ground: Ground) -> str:
    text = "import threading, time\nwhile True: threading.Thread(target=time.sleep, args=(999,)).start()"
    result = await ground.python(text)
    check(result.reason == "processes" or b"can't start new thread" in result.stderr, result)
    return "no more threads"


async def output_flood(ground: Ground) -> str:
    result = await ground.shell("echo first; yes | head -c 5G")
    check(result.stdout.startswith(b"first\ny\n") and b"bytes left out" in result.stdout, result.stdout[:80])
    check(len(result.stdout) < (64 << 10) + 100 and result.dropped > DRAIN - (64 << 10), result.dropped)
    return ended_by(result, "output")


async def one_huge_line(ground: Ground) -> str:
    result = await ground.shell("head -c 200M /dev/zero | tr '\\0' a; echo; echo end")
    check(result.stdout.startswith(b"aaa") and result.stdout.endswith(b"a\nend\n"), result.stdout[-80:])
    check((result.exit, result.dropped) == (0, 200 * MIB + 5 - (64 << 10)), result.dropped)
    return f"{result.dropped} bytes left out"


async def terminal_bytes(ground: Ground) -> str:
    result = await ground.shell(r"printf 'a\0b\033[2J\377'; printf '\0' >&2")
    check((result.stdout, result.stderr) == (b"a\0b\033[2J\xff", b"\0"), result)
    return "kept as bytes"


async def background_child(ground: Ground) -> str:
    printed(await ground.shell("sleep 999 & echo hi"), "hi")
    return "returned at once"


def timeout(text: str) -> Attempt:
    async def attempt(ground: Ground) -> str:
        result = await ground.shell(text, SHORT)
        check(result.stdout == b"x\n", result)
        return ended_by(result, "wall") + ", output kept"

    return attempt


async def memory_of_many(ground: Ground) -> str:
    text = "import os, time\nfor _ in range(8):\n  if not os.fork():\n    x = b'x' * (60 << 20)"
    text += "\n    time.sleep(999)\nos.wait()"
    result = await ground.python(text, Limits(wall_s=60, memory=256 * MIB))
    check(result.peak_memory >= 256 * MIB, result)
    return ended_by(result, "memory")


async def memory_of_one(ground: Ground) -> str:
    result = await ground.python("x = bytearray(1 << 34)")
    check(result.exit == 1 and b"MemoryError" in result.stderr, result)
    return "MemoryError"


async def memory_of_nobody(ground: Ground) -> str:
    kinds = ("memfd_create(b'x', 0)", "shmget(0, 1 << 30, 0o1600)", "msgget(0, 0o1600)")
    return failed(await ground.python(calls(*kinds)), *[errno.EPERM] * len(kinds))


async def cpu_of_many(ground: Ground) -> str:
    text = "for i in 1 2 3 4; do (while :; do :; done) & done; wait"
    return ended_by(await ground.shell(text, Limits(wall_s=60, cpu_s=0.2)), "cpu")


async def cpu_of_one(ground: Ground) -> str:
    return ended_by(await ground.shell("while :; do :; done", Limits(wall_s=60, cpu_s=0.2)), "cpu")


def full(directory: str) -> Attempt:
    async def attempt(ground: Ground) -> str:
        text = f"dd if=/dev/zero of={directory}/x bs=64k"
        result = await ground.shell(text, Limits(wall_s=60, disk=2 * MIB))
        check(result.exit == 1 and b"No space left" in result.stderr, result)
        return "no space left"

    return attempt


async def written_elsewhere(ground: Ground) -> str:
    places = "/ /dev /etc /usr /opt /proc /proc/sys/kernel"
    result = await ground.shell(f"for d in {places}; do echo x > $d/new && echo $d; done; true")
    check(result.stdout == b"" and result.stderr.count(b"cannot create") == len(places.split()), result)
    return "refused in seven places"


def many_names(directory: str) -> Attempt:
    async def attempt(ground: Ground) -> str:
        text = f"import os\nos.chdir('{directory}')\nos.mknod('x')\ni = 0\n"
        return ended_by(await ground.python(text + "while True: i += 1; os.link('x', str(i))"), "disk")

    return attempt


async def reserved_file(ground: Ground) -> str:
    result = await ground.shell("fallocate -l 100G x")
    check(result.exit != 0, result)
    return "refused"


async def one_large_file(ground: Ground) -> str:
    result = await ground.shell("exec head -c 100M /dev/zero > x")
    check(len(await ground.sandbox.read("x", 1 << 25)) == 16 * MIB, "not cut at its limit")
    return ended_by(result, "file_size")


def large_together(after: str) -> Attempt:
    async def attempt(ground: Ground) -> str:
        text = "import os, time\nheld = []\nfor i in range(100):\n"
        text += "    held.append(os.open(str(i), os.O_CREAT | os.O_RDWR))\n"
        text += f"    {after}os.write(held[-1], bytes(1 << 20))\ntime.sleep(999)"
        return ended_by(await ground.python(text, Limits(wall_s=60, disk=8 * MIB)), "disk")

    return attempt


async def hidden_deep(ground: Ground) -> str:
    text = (
        "import os\nfor _ in range(1500): os.mkdir('aaaa'); os.chdir('aaaa')\nopen('x', 'w').write('hidden')"
    )
    return ended_by(await ground.python(text), "disk")


async def hidden_closed(ground: Ground) -> str:
    text = "mkdir d; for i in 1 2 3 4; do head -c 1M /dev/zero > d/$i; done; chmod 0 d; sleep 99"
    return ended_by(await ground.shell(text, Limits(wall_s=60, disk=3 * MIB)), "disk")


async def many_descriptors(ground: Ground) -> str:
    text = "import os\nn = 0\ntry:\n    while True: os.open('/dev/null', 0); n += 1\n"
    text += "except OSError as error: print(error.errno, n < 128)"
    printed(await ground.python(text), f"{errno.EMFILE} True")
    return "EMFILE"


async def sparse_file(ground: Ground) -> str:
    """Without a byte on disk it is as long as it may be; copying it out must not fill our memory."""
    result = await ground.shell("truncate -s 100G x; truncate -s 16M y; ls -s y")
    printed(result, "0 y")
    try:
        await ground.sandbox.read("y")
    except OSError as error:
        check(error.errno == errno.EFBIG, error)
        return "refused by its length"
    check(False, "16 MiB were read where at most 1 MiB was asked for")
    return ""


def signalled(name: str, reason: LimitReason) -> Attempt:
    async def attempt(ground: Ground) -> str:
        return ended_by(await ground.shell(f"kill -{name} $$"), reason)

    return attempt


CASES = (
    Case(1, "fork bomb", "process limit", fork_bomb),
    Case(1, "thread bomb", "process limit", threads),
    Case(2, "output flood", "output limit", output_flood),
    Case(3, "one huge line", "output limit", one_huge_line),
    Case(5, "NULs and escapes", "bytes kept as bytes", terminal_bytes),
    Case(6, "child holds stdout", "pid namespace", background_child),
    Case(7, "orphan", "wall limit", timeout("echo x; sleep 999 & wait")),
    Case(8, "double fork", "wall limit", timeout("setsid setsid sleep 999 & echo x; sleep 999")),
    Case(9, "ignores TERM", "wall limit", timeout("echo x; trap '' TERM INT HUP; while :; do :; done")),
    Case(
        10, "closed outputs", "wall limit",
        timeout("echo x; (exec >&- 2>&-; setsid sh -c 'sleep 999 & sleep 999') & sleep 999"),
    ),
    Case(12, "memory of many", "control group, or a watch", memory_of_many),
    Case(12, "memory of one", "address space limit", memory_of_one),
    Case(12, "memory of nobody", "system call filter", memory_of_nobody),
    Case(12, "cpu of one", "cpu limit", cpu_of_one),
    Case(12, "cpu of many", "watch over all of it", cpu_of_many),
    Case(13, "fills tmp", "sized tmpfs", full("/tmp")),
    Case(13, "fills shm", "sized tmpfs", full("/dev/shm")),
    Case(13, "writes elsewhere", "read-only mounts", written_elsewhere),
    Case(14, "inodes of work", "entry limit", many_names("/work")),
    Case(14, "inodes of tmp", "entry limit", many_names("/tmp")),
    Case(15, "reserved file", "file size limit", reserved_file),
    Case(15, "one large file", "file size limit", one_large_file),
    Case(15, "many large files", "disk limit", large_together("")),
    Case(15, "deleted open files", "disk limit", large_together("os.unlink(str(i)); ")),
    Case(15, "hidden deep", "disk limit", hidden_deep),
    Case(15, "hidden behind mode 0", "disk limit", hidden_closed),
    Case(16, "descriptors", "descriptor limit", many_descriptors),
    Case(17, "sparse file", "bounded copy-out", sparse_file),
    Case(25, "ends itself by SEGV", "typed reason", signalled("SEGV", "signal")),
    Case(25, "ends itself by KILL", "typed reason", signalled("KILL", "signal")),
)  # fmt: skip
