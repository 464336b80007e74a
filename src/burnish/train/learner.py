"""The learner: owns the trained weights and the optimizer, on one machine.

What this file is: `interfaces.Learner`: bf16 compute weights with fp32 masters, packed forward and backward,
gradients accumulated in fp32 over micro-batches and divided once by the update's global count, AdamW, a value
head beside the model, and everything that a resume needs.
What it is not: it knows no algorithm (credit and loss are the algorithm's) and no rollouts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from burnish.interfaces import Algorithm
from burnish.model.attention import PackedAttention
from burnish.model.compute import compute_thread, computed
from burnish.model.memory import return_surplus
from burnish.model.transformer import Transformer
from burnish.model.weights import load_model, save_model
from burnish.train.logprobs import token_logprobs
from burnish.train.packing import Packed, build_samples, micro_batches
from burnish.types import BurnishError, Group, UsageError

OPTIMIZER_FILE = "optimizer.safetensors"
HEADS_FILE = "heads.safetensors"


@dataclass(frozen=True, slots=True)
class Optimization:
    """How one update is made of the groups it is given. `rate` is AdamW's peak learning rate, reached after
    `warmup` optimizer steps; `value_rate` the value head's, whose gradient is its own and is not clipped. The
    groups are split into `minibatches` optimizer steps, `epochs` times over; `max_kl` (nats a token,
    estimated) ends an update early. `micro_batch` bounds the stored tokens that are computed at once."""

    rate: float = 1e-5
    value_rate: float = 1e-3
    warmup: int = 0
    betas: tuple[float, float] = (0.9, 0.95)
    eps: float = 1e-8
    weight_decay: float = 0.0
    clip_norm: float = 1.0
    epochs: int = 1
    minibatches: int = 1
    max_kl: float | None = None
    micro_batch: int = 2048

    def __post_init__(self) -> None:
        if not (self.rate > 0 and self.clip_norm > 0 and self.epochs > 0 and self.minibatches > 0):
            raise UsageError("optimization: rate, clip_norm, epochs and minibatches must be positive")


class LocalLearner:
    """Trains the model in `directory`. `reference` is the directory of the frozen reference model, loaded only
    when an algorithm needs it."""

    def __init__(self, directory: Path, optimization: Optimization, reference: Path | None = None) -> None:
        compute_thread()
        self.optimization = optimization
        self.source = directory
        self.model = load_model(directory, torch.bfloat16)
        self.reference_directory = reference or directory
        self._reference: Transformer | None = None
        self.value_head = nn.Linear(self.model.config.hidden_size, 1)
        nn.init.zeros_(self.value_head.weight)
        nn.init.zeros_(self.value_head.bias)
        self.steps = 0
        parameters = dict(self.model.named_parameters())
        self._compute = parameters
        exact = load_model(directory, torch.float32).state_dict()
        self._masters = {name: exact[name].clone() for name in self._compute}
        self._grads = {name: torch.zeros_like(m) for name, m in self._masters.items()}
        for name, parameter in self._compute.items():
            parameter.register_post_accumulate_grad_hook(self._accumulator(name))  # type: ignore[no-untyped-call]
        self.optimizer = torch.optim.AdamW(
            [
                {"params": list(self._masters.values()), "lr": optimization.rate},
                {"params": list(self.value_head.parameters()), "lr": optimization.value_rate},
            ],
            betas=optimization.betas, eps=optimization.eps,
            weight_decay=optimization.weight_decay, fused=True,
        )  # fmt: skip

    def _accumulator(self, name: str) -> Callable[[Tensor], None]:
        """Moves a micro-batch's bf16 gradient into the fp32 sum: adding many small ones in bf16 loses them."""

        def accumulate(parameter: Tensor) -> None:
            assert parameter.grad is not None
            self._grads[name].add_(parameter.grad)
            parameter.grad = None

        return accumulate

    # --- what the algorithm needs to know ---------------------------------------------------------------

    def annotate(self, groups: Sequence[Group], needs: Sequence[str]) -> None:
        """Builds samples and adds the columns `reference` and `values` (with `tail_value` [1], the value of
        the state that a truncated episode was left in)."""
        for group in groups:
            build_samples(group)
        computed(self._annotate, groups, needs)

    @torch.no_grad()
    def _annotate(self, groups: Sequence[Group], needs: Sequence[str]) -> None:
        unknown = set(needs) - {"reference", "values"}
        if unknown:
            raise UsageError(f"the learner cannot annotate {sorted(unknown)}; it knows reference and values")
        for packed in micro_batches(groups, self.optimization.micro_batch) if needs else ():
            if "reference" in needs:
                packed.scatter("reference", self._logprobs(self.reference, packed)[0])
            if "values" in needs:
                hidden = self._hidden(self.model, packed)
                packed.scatter("values", self._values(hidden[packed.sources]))
                for sample, tail in zip(packed.samples, self._values(hidden[packed.ends]), strict=True):
                    sample.columns["tail_value"] = tail.view(1).numpy()

    @property
    def reference(self) -> Transformer:
        if self._reference is None:
            self._reference = load_model(self.reference_directory, torch.bfloat16).requires_grad_(False)
        return self._reference

    def _hidden(self, model: Transformer, packed: Packed) -> Tensor:
        layout = packed.layout
        hidden: Tensor = model(layout.ids, layout.positions, PackedAttention(layout))
        return hidden

    def _logprobs(self, model: Transformer, packed: Packed) -> tuple[Tensor, Tensor, Tensor]:
        hidden = self._hidden(model, packed)
        chosen, entropy = token_logprobs(
            hidden, model.head.weight, packed.sources, packed.targets, packed.temperatures
        )
        return chosen, entropy, hidden

    def _values(self, hidden: Tensor) -> Tensor:
        # The trunk serves the policy: the critic reads it and does not steer it.
        values: Tensor = self.value_head(hidden.detach().float())[:, 0]
        return values

    # --- the update -------------------------------------------------------------------------------------

    def update(self, groups: Sequence[Group], algorithm: Algorithm) -> dict[str, float]:
        """Optimizer steps over the groups. Returns means over all trainable tokens of what the loss reports,
        and `gradient_norm`, `rate`, `optimizer_steps`. An update without a trainable token does nothing."""
        measured = computed(self._update, groups, algorithm)
        return_surplus()
        return measured

    def _update(self, groups: Sequence[Group], algorithm: Algorithm) -> dict[str, float]:
        o = self.optimization
        useful = [g for g in groups if any(s.columns["trainable"].any() for s in g.samples)]
        sums: dict[str, list[float]] = {}
        taken = 0
        for _ in range(o.epochs):
            for start in range(o.minibatches):
                part = useful[start :: o.minibatches]
                if not part:
                    continue
                measured = self._step(part, algorithm)
                taken += 1
                for name, value in measured.items():
                    sums.setdefault(name, []).append(value)
                if o.max_kl is not None and measured.get("approx_kl", 0.0) > o.max_kl:
                    return _means(sums) | {"optimizer_steps": taken, "stopped_early": 1.0}
        return _means(sums) | {"optimizer_steps": taken, "stopped_early": 0.0}

    def _step(self, groups: Sequence[Group], algorithm: Algorithm) -> dict[str, float]:
        normalizer = algorithm.normalizer(groups)
        totals: dict[str, float] = {}
        for packed in micro_batches(groups, self.optimization.micro_batch):
            logprobs, entropy, hidden = self._logprobs(self.model, packed)
            output = {"logprobs": logprobs, "entropy": entropy}
            if "values" in algorithm.needs:
                output["values"] = self._values(hidden[packed.sources])
            loss, metrics = algorithm.loss(output, self._batch(packed))
            (loss / normalizer).backward()
            for name, value in metrics.items():
                totals[name] = totals.get(name, 0.0) + float(value)
        count = max(totals.pop("count", 1.0), 1.0)
        norm = self._apply()
        return {name: value / count for name, value in totals.items()} | {
            "gradient_norm": norm, "rate": self.optimizer.param_groups[0]["lr"],
        }  # fmt: skip

    def _batch(self, packed: Packed) -> Mapping[str, Tensor]:
        lengths = {len(s) for s in packed.samples}
        names = set.intersection(
            *({n for n, c in s.columns.items() if len(c) == len(s)} for s in packed.samples)
        ) if lengths else set()  # fmt: skip
        return {name: packed.column(name) for name in sorted(names)} | {
            "sequence": torch.from_numpy(packed.owner)
        }

    def _apply(self) -> float:
        o = self.optimization
        norm = float(torch.nn.utils.get_total_norm(list(self._grads.values())))
        if not math.isfinite(norm):
            raise BurnishError(
                f"the gradient is {norm} at optimizer step {self.steps}: stopped before it reached the "
                "weights; lower the learning rate, or resume from the last checkpoint"
            )
        scale = min(1.0, o.clip_norm / (norm + 1e-6))
        torch._foreach_mul_(list(self._grads.values()), scale)
        for name, master in self._masters.items():
            master.grad = self._grads[name]
        for group, peak in zip(self.optimizer.param_groups, (o.rate, o.value_rate), strict=True):
            group["lr"] = peak * min(1.0, (self.steps + 1) / max(1, o.warmup))
        self.optimizer.step()
        self.steps += 1
        with torch.no_grad():
            torch._foreach_copy_(list(self._compute.values()), list(self._masters.values()))
            torch._foreach_zero_(list(self._grads.values()))
        self.value_head.zero_grad()
        return norm

    # --- what leaves the learner ------------------------------------------------------------------------

    def export(self) -> Mapping[str, Tensor]:
        """The compute weights, as `Engine.load` takes them. Shared memory: load copies."""
        return {name: tensor.detach() for name, tensor in self.model.state_dict().items()}

    def save(self, directory: Path, resumable: bool = True) -> None:
        """Writes a Hugging Face directory and the heads; `resumable` adds the masters and optimizer state."""
        save_model(self.model, directory, source=self.source)
        save_file(
            {f"value.{n}": t.detach().contiguous() for n, t in self.value_head.named_parameters()},
            directory / HEADS_FILE,
        )
        if not resumable:
            return
        state = {f"master.{name}": master for name, master in self._masters.items()}
        for name, tensor in [*self._masters.items(), *self.value_head.named_parameters()]:
            for key, value in self.optimizer.state.get(tensor, {}).items():
                state[f"{key}.{name}"] = value.detach().reshape(value.shape)
        state["steps"] = torch.tensor(self.steps)
        save_file(state, directory / OPTIMIZER_FILE)

    def load(self, directory: Path) -> None:
        """Continues from what `save` wrote, to the same numbers."""
        path = directory / OPTIMIZER_FILE
        if not path.exists():
            raise UsageError(f"{path} is missing: this checkpoint can be evaluated or served, not resumed")
        state, heads = load_file(path), load_file(directory / HEADS_FILE)
        with torch.no_grad():
            for name, master in self._masters.items():
                master.copy_(state[f"master.{name}"])
            torch._foreach_copy_(list(self._compute.values()), list(self._masters.values()))
            for name, parameter in self.value_head.named_parameters():
                parameter.copy_(heads[f"value.{name}"])
        for name, tensor in [*self._masters.items(), *self.value_head.named_parameters()]:
            keys = ("step", "exp_avg", "exp_avg_sq")
            if f"step.{name}" in state:
                self.optimizer.state[tensor] = {key: state[f"{key}.{name}"].clone() for key in keys}
        self.steps = int(state["steps"])


def _means(sums: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    return {name: sum(values) / len(values) for name, values in sums.items()}
