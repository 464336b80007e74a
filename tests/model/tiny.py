"""A tiny random model directory, in the same formats as the real one, for everyone's tests.

What this file is: it writes config.json, model.safetensors, tokenizer.json, tokenizer_config.json and
generation_config.json of a Llama-architecture model with ChatML specials and SmolLM2's chat template.
What it is not: it imports nothing of Burnish, so that a fault in the package cannot hide in its own fixture,
and the model knows nothing: its weights are random.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<file_sep>")
END_ID, START_ID, STOP_ID = 0, 1, 2

CHAT_TEMPLATE = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face"
    "<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + "
    "'<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}"
    "{{ '<|im_start|>assistant\n' }}{% endif %}"
)

TEXT = [
    "system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face\n",
    "user\nRead the file and tell me how many lines it has.\n",
    "assistant\nThe file has several lines. The answer is there, not here.\n",
    '<tool_call>{"name": "read_file", "arguments": {"path": "notes.txt"}}</tool_call>',
    '<tool_call>{"name": "list_files", "arguments": {}}</tool_call>',
    '<tool_call>{"name": "run", "arguments": {"command": "python main.py", "timeout": 10}}</tool_call>',
    "To call a tool, write <tool_call> and </tool_call>. Tools:\nread_file(path): Read a text file.\n",
    "tool\nerror: the tool call has no name. There is no such tool. The table has no rows.\n",
    "def main(value: int) -> int:\n    return value + 1\n\nfor item in items:\n    print(item)\n",
    "The quick brown fox jumps over the lazy dog; what was asked is what was answered, and nothing more.",
    "Find the total, then write the report, and say so when the result is empty or an error comes back.",
    "select name, count(*) from orders where status = 'open' group by name order by 2 desc limit 10",
]


def tiny_tokenizer(vocab_size: int = 512) -> Tokenizer:
    """A byte-level BPE trained on `TEXT`; the specials have ids 0 to 3, in the order of `SPECIALS`."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[AddedToken(text, special=True, normalized=False) for text in SPECIALS],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXT, trainer)
    return tokenizer


def tiny_weights(config: dict[str, object], seed: int) -> dict[str, torch.Tensor]:
    """Random fp32 weights under Hugging Face names; matrices keep the scale of their input."""
    generator = torch.Generator().manual_seed(seed)
    hidden, inner, dim = (int(str(config[k])) for k in ("hidden_size", "intermediate_size", "head_dim"))
    q_rows = int(str(config["num_attention_heads"])) * dim
    kv_rows = int(str(config["num_key_value_heads"])) * dim

    def matrix(rows: int, columns: int) -> torch.Tensor:
        return torch.randn(rows, columns, generator=generator) / math.sqrt(columns)

    def norm() -> torch.Tensor:
        return 1.0 + 0.1 * torch.randn(hidden, generator=generator)

    weights = {"model.embed_tokens.weight": matrix(int(str(config["vocab_size"])), hidden)}
    for layer in range(int(str(config["num_hidden_layers"]))):
        at = f"model.layers.{layer}."
        weights |= {
            at + "input_layernorm.weight": norm(),
            at + "self_attn.q_proj.weight": matrix(q_rows, hidden),
            at + "self_attn.k_proj.weight": matrix(kv_rows, hidden),
            at + "self_attn.v_proj.weight": matrix(kv_rows, hidden),
            at + "self_attn.o_proj.weight": matrix(hidden, q_rows),
            at + "post_attention_layernorm.weight": norm(),
            at + "mlp.gate_proj.weight": matrix(inner, hidden),
            at + "mlp.up_proj.weight": matrix(inner, hidden),
            at + "mlp.down_proj.weight": matrix(hidden, inner),
        }
    weights["model.norm.weight"] = norm()
    return weights


def tiny_directory(
    path: Path,
    seed: int = 0,
    layers: int = 2,
    hidden: int = 64,
    heads: int = 4,
    kv_heads: int = 2,
    head_dim: int = 16,
    vocab_size: int = 512,
    dtype: torch.dtype = torch.float32,
) -> Path:
    """Write a model directory at `path` (created) and return it; the same arguments give the same bytes."""
    path = Path(path)
    path.mkdir(parents=True, exist_ok=True)
    tokenizer = tiny_tokenizer(vocab_size)
    config: dict[str, object] = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": tokenizer.get_vocab_size(),
        "hidden_size": hidden,
        "intermediate_size": 2 * hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim,
        "hidden_act": "silu",
        "rope_theta": 100000.0,
        "rms_norm_eps": 1e-5,
        "max_position_embeddings": 4096,
        "tie_word_embeddings": True,
        "attention_bias": False,
        "mlp_bias": False,
        "bos_token_id": START_ID,
        "eos_token_id": STOP_ID,
        "pad_token_id": STOP_ID,
        "torch_dtype": str(dtype).removeprefix("torch."),
    }
    tokenizer.save(str(path / "tokenizer.json"))
    tokenizer_config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": SPECIALS[START_ID],
        "eos_token": SPECIALS[STOP_ID],
        "pad_token": SPECIALS[STOP_ID],
        "unk_token": SPECIALS[END_ID],
        "model_max_length": 4096,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }
    generation = {"bos_token_id": START_ID, "eos_token_id": STOP_ID, "pad_token_id": STOP_ID}
    named = {"config": config, "tokenizer_config": tokenizer_config, "generation_config": generation}
    for name, content in named.items():
        (path / f"{name}.json").write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    weights = {name: tensor.to(dtype).contiguous() for name, tensor in tiny_weights(config, seed).items()}
    save_file(weights, path / "model.safetensors", metadata={"format": "pt"})
    return path
