"""What a sandboxed command costs over bubblewrap alone: `python -m benchmarks.sandbox --json`.

What this file is: the same command through `LocalSandbox.run` and through a bare `bwrap` started with
subprocess, in turn, so that both see the same load. The bare one drops no user id, sets no limit and waits
for no process but its own, which only a trusted command like this one may be run with.
What it is not: a load test. The last line of its output is one JSON object; times in milliseconds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import time

from burnish.sandbox import LocalSandboxes
from burnish.sandbox.image import find_bwrap
from burnish.sandbox.lease import state_directory

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


async def measure(rounds: int) -> dict[str, float | int]:
    bwrap = find_bwrap(state_directory())
    times: dict[str, list[float]] = {"bare": [], "run": [], "cold": []}
    async with LocalSandboxes() as sandboxes:
        kept = await sandboxes.open()
        for _ in range(rounds):
            times["bare"].append(bare(bwrap))
            begin = time.perf_counter()
            await kept.run(["true"])
            times["run"].append(time.perf_counter() - begin)
            begin = time.perf_counter()
            async with await sandboxes.open() as fresh:
                await fresh.run(["true"])
            times["cold"].append(time.perf_counter() - begin)
    median = {name: statistics.median(values) * 1e3 for name, values in times.items()}
    return {
        "bubblewrap_ms": round(median["bare"], 3),
        "run_ms": round(median["run"], 3),
        "cold_start_ms": round(median["cold"], 3),
        "ratio": round(median["cold"] / median["bare"], 3),
        "run_ratio": round(median["run"] / median["bare"], 3),
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
