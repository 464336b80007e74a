"""TRL's GRPOTrainer on a workload that it is given, one step at a time: the peer of `benchmarks.train_step`.

What this file is: run by `.venv-peers/bin/python`. It reads the workload, one JSON object, from the first
line of its input; then makes one training step for each further line and answers it with one JSON line:
seconds of the step, seconds of its generation, tokens sampled. What the library prints goes to stderr.
What it is not: it imports nothing of Burnish, and it departs from TRL's defaults only in favour
of its speed: weights in bf16 (`peer_dtype`), no gradient checkpointing, no KL, no saving, no logging.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from typing import Any

os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", "TOKENIZERS_PARALLELISM": "false"}


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a library prints is no answer
    workload = json.loads(sys.stdin.readline())

    import torch
    import transformers
    import trl
    from datasets import Dataset
    from transformers import AutoTokenizer, TrainerCallback

    torch.set_num_threads(workload["threads"])
    tokenizer = AutoTokenizer.from_pretrained(workload["model"])
    same = [tokenizer(p)["input_ids"] for p in workload["prompts"]] == workload["prompt_ids"]
    seen: dict[str, Any] = {"generation": 0.0, "tokens": 0, "began": 0.0}

    def answer(**fields: Any) -> None:
        answers.write(json.dumps(fields) + "\n")
        answers.flush()

    class Timed(trl.GRPOTrainer):
        def _generate_single_turn(self, *args: Any, **kwargs: Any) -> Any:
            began = time.perf_counter()
            made = super()._generate_single_turn(*args, **kwargs)
            seen["generation"] += time.perf_counter() - began
            seen["tokens"] += sum(map(len, made[0]))
            return made

    class OneByOne(TrainerCallback):
        def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            sys.stdin.readline()
            seen.update(generation=0.0, tokens=0, began=time.perf_counter())

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            answer(
                step_s=time.perf_counter() - seen["began"],
                generation_s=seen["generation"],
                tokens=seen["tokens"],
            )

    def reward(completion_ids: list[list[int]], **_: Any) -> list[float]:
        return [sum(ids) % 7 / 6 for ids in completion_ids]

    count, size, steps = len(workload["prompts"]), workload["size"], workload["steps"]
    with tempfile.TemporaryDirectory() as directory:
        config = trl.GRPOConfig(
            output_dir=directory, use_cpu=True, bf16=workload["peer_dtype"] == "float32",
            model_init_kwargs={"dtype": workload["peer_dtype"]},
            per_device_train_batch_size=workload["micro_batch"],
            gradient_accumulation_steps=count * size // workload["micro_batch"],
            num_generations=size, max_completion_length=workload["max_tokens"], temperature=1.0,
            learning_rate=workload["rate"], lr_scheduler_type="constant", beta=0.0, num_iterations=1,
            gradient_checkpointing=False, max_steps=steps, save_strategy="no", logging_strategy="no",
            report_to=[], disable_tqdm=True, seed=0, dataloader_pin_memory=False,
        )  # fmt: skip
        trainer = Timed(
            model=workload["model"], reward_funcs=reward, args=config, processing_class=tokenizer,
            train_dataset=Dataset.from_dict({"prompt": workload["prompts"]}), callbacks=[OneByOne()],
        )  # fmt: skip
        versions = {m.__name__: m.__version__ for m in (trl, transformers, torch)}
        answer(versions=versions, same_tokens=same)
        trainer.train()


if __name__ == "__main__":
    main()
