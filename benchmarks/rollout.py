"""Trajectories a second, generation only, beside TRL: `python -m benchmarks.rollout --json`.

What this file is: the same prompts, group size and limit of new tokens for both; the median of runs taken in
turn. The last line of the output is one JSON object; `ratio` is Burnish's rate over TRL's.
What it is not: it measures no update (`benchmarks.train_step` does). TRL's figure is the generation inside
its training steps, since it offers no other.
"""

from __future__ import annotations

import argparse
import json

from benchmarks.workload import HOW, Step, Workload, described, in_turn, median, workload_from


def rates(workload: Workload, steps: list[Step]) -> dict[str, float]:
    """Trajectories and sampled tokens a second of generation, medians."""
    return {
        "trajectories_per_second": median([workload.trajectories / s.generation_s for s in steps]),
        "tokens_per_second": median([s.tokens / s.generation_s for s in steps]),
        "tokens_per_trajectory": median([s.tokens / workload.trajectories for s in steps]),
    }


def main() -> None:
    workload, chosen = workload_from(argparse.ArgumentParser(description=__doc__))
    mine, theirs, versions = in_turn(workload, update=False)
    burnish, trl = rates(workload, mine), rates(workload, theirs) if theirs else None
    name = "trajectories_per_second"
    ratio = None if trl is None else burnish[name] / trl[name]
    if not chosen.json:
        print(f"Burnish {burnish[name]:.2f} trajectories/s over {workload.trajectories} of each run")
        print(HOW if trl is None else f"TRL     {trl[name]:.2f} trajectories/s; ratio {ratio:.2f}")
    elif trl is None:
        print(HOW)
    print(json.dumps({
        "benchmark": "rollout", **described(workload), "burnish": burnish, "trl": trl,
        "versions": versions, "ratio": ratio,
    }))  # fmt: skip


if __name__ == "__main__":
    main()
