"""A whole step of GRPO, rollout and update, beside TRL: `python -m benchmarks.train_step --json`.

What this file is: the same model, prompts, group size, limit of new tokens and rewards for both; the median
of steps taken in turn. The last line of the output is one JSON object: `ratio` is TRL's seconds a step over
Burnish's, `update_ratio` the same of what is not generation. Tokens of an update are prompt and answer of
every trajectory, whether computed once or many times.
What it is not: it compares no quality. TRL runs as `benchmarks/peers/trl_grpo.py` says.
"""

from __future__ import annotations

import argparse
import json

from benchmarks.workload import HOW, Step, Workload, described, in_turn, median, workload_from


def figures(workload: Workload, steps: list[Step]) -> dict[str, float]:
    """Medians over steps."""
    prompts = workload.size * sum(map(len, workload.prompt_ids))
    return {
        "step_s": median([s.step_s for s in steps]),
        "generation_s": median([s.generation_s for s in steps]),
        "update_s": median([s.step_s - s.generation_s for s in steps]),
        "update_tokens_per_second": median(
            [(prompts + s.tokens) / (s.step_s - s.generation_s) for s in steps]
        ),
        "trajectories_per_second": median([workload.trajectories / s.step_s for s in steps]),
        "tokens_per_trajectory": median([s.tokens / workload.trajectories for s in steps]),
    }


def main() -> None:
    workload, chosen = workload_from(argparse.ArgumentParser(description=__doc__))
    mine, theirs, versions = in_turn(workload)
    burnish, trl = figures(workload, mine), figures(workload, theirs) if theirs else None
    ratio = None if trl is None else trl["step_s"] / burnish["step_s"]
    update_ratio = None if trl is None else trl["update_s"] / burnish["update_s"]
    if not chosen.json:
        for name, side in (("Burnish", burnish), ("TRL", trl)):
            if side is not None:
                parts = f"generation {side['generation_s']:.2f} s, update {side['update_s']:.2f} s"
                print(f"{name:8} {side['step_s']:.2f} s a step: {parts}")
        print(HOW if ratio is None else f"ratio    {ratio:.2f}")
    elif trl is None:
        print(HOW)
    print(json.dumps({
        "benchmark": "train_step", **described(workload), "burnish": burnish, "trl": trl,
        "versions": versions, "ratio": ratio, "update_ratio": update_ratio,
    }))  # fmt: skip


if __name__ == "__main__":
    main()
