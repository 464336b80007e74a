"""What a sandboxed command costs over bubblewrap alone: `python -m benchmarks.sandbox --json`.

What this file is: the same command through `LocalSandbox.run` and through a bare `bwrap` started with
subprocess, in turn, so that both see the same load. The bare one drops no user id, sets no limit and waits
for no process but its own, which only a trusted command like this one may be run with.
What it is not: a load test. The last line of its output is one JSON object; times in milliseconds, medians.
`fork_ms` is `snapshot.fork()` of a workspace with 2,000 files, `fork_cold_ms` that with a first command and the
closing, to be read beside `cold_ms`, the same of an empty workspace; `session_ms` is a command in a shell.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import time
from collections import defaultdict
from collections.abc import Awaitable
from typing import TypeVar

from burnish.sandbox import LocalSandboxes
from burnish.sandbox.image import find_bwrap
from burnish.sandbox.lease import state_directory
from burnish.sandbox.local import LocalSnapshot

T = TypeVar("T")

FILES = 2000

_BARE = [
    *("--unshare-all", "--die-with-parent", "--new-session", "--ro-bind", "/usr", "/usr"),
    *("--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64"),
    *("--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"),
]


def bare(bwrap: str) -> float:
    begin = time.perf_counter()
    subprocess.run(
        [bwrap, *_BARE, "true"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
        env={"PATH": "/usr/bin:/bin"},
        cwd="/",
    )
    return time.perf_counter() - begin


async def timed(times: list[float], work: Awaitable[T]) -> T:
    begin = time.perf_counter()
    done = await work
    times.append(time.perf_counter() - begin)
    return done


async def cold(sandboxes: LocalSandboxes, argv: list[str]) -> None:
    async with await sandboxes.open() as fresh:
        await fresh.run(argv)


async def forked(snapshot: LocalSnapshot) -> None:
    async with await snapshot.fork() as fork:
        await fork.run(["true"])


async def measure(rounds: int) -> dict[str, float | int]:
    bwrap = find_bwrap(state_directory())
    times: dict[str, list[float]] = defaultdict(list)
    async with LocalSandboxes() as sandboxes:
        kept, prepared = await sandboxes.open(), await sandboxes.open()
        for number in range(FILES):
            await prepared.write(f"{number % 40}/{number}", b"x" * 1000)
        snapshot = await prepared.snapshot()
        shell = await (await sandboxes.open()).shell()
        for _ in range(rounds):
            times["bwrap"].append(bare(bwrap))
            await timed(times["run"], kept.run(["true"]))
            await timed(times["cold"], cold(sandboxes, ["true"]))
            await timed(times["python_ready"], cold(sandboxes, ["python3", "-c", "pass"]))
            await timed(times["session"], shell.run(":"))
            fork = await timed(times["fork"], snapshot.fork())
            await fork.close()
            await timed(times["fork_cold"], forked(snapshot))
    median = {name: statistics.median(values) * 1e3 for name, values in times.items()}
    return {
        **{f"{name}_ms": round(value, 3) for name, value in median.items()},
        "cold_ratio": round(median["cold"] / median["bwrap"], 3),
        "run_ratio": round(median["run"] / median["bwrap"], 3),
        "rounds": rounds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--json", action="store_true", help="only the JSON line")
    options = parser.parse_args()
    found = asyncio.run(measure(options.rounds))
    if not options.json:
        print("cold start: open a sandbox, run `true`, close it; against bubblewrap alone")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
