"""Tiny language models with random weights, in the form in which pretrained ones are stored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from sordino.core.seeds import stream
from sordino.local.models import InputSpec

PADDING = 0
VOCABULARY = 64
LENGTH = 10


def tiny(folder: Path, family: str = "llama", **keys: Any) -> Path:
    """Two layers of width 16 of one family (`bert`, `llama`, `gpt2`, ...), saved without a head as a base model is."""
    from transformers import AutoConfig, AutoModel, AutoModelForCausalLM

    sizes = {
        "gpt2": {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 32},
        "distilbert": {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 24, "max_position_embeddings": 32},
    }.get(
        family,
        {
            "hidden_size": 16,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "intermediate_size": 24,
            "max_position_embeddings": 48,
        },
    )
    if family in ("llama", "mistral", "qwen2"):
        sizes = {"num_key_value_heads": 2, **sizes}
    tokens = {"vocab_size": VOCABULARY, "pad_token_id": PADDING, "bos_token_id": 1, "eos_token_id": 2}
    config = AutoConfig.for_model(family, **{**tokens, **sizes, **keys})
    encoder = family in ("bert", "roberta", "distilbert", "electra")
    with torch.random.fork_rng(devices=[]):
        network = (AutoModel if encoder else AutoModelForCausalLM).from_config(config)
    generator = torch.Generator().manual_seed(int(stream(0, "tiny", len(family)).integers(2**31)))
    with torch.no_grad():
        for parameter in network.parameters():  # spread enough for attention to have something to attend to
            if parameter.dim() > 1:
                parameter.normal_(0, 0.3, generator=generator)
    network.save_pretrained(folder)
    return folder


def spec_of(folder: Path, task: str = "classify", classes: int = 2) -> InputSpec:
    """What a text dataset says of its records, for a tiny model."""
    outputs = classes if task == "classify" else VOCABULARY
    return InputSpec((LENGTH,), outputs, VOCABULARY, PADDING, str(folder))


def texts(task: str = "classify", classes: int = 2, lengths: tuple[int, ...] = (10, 7, 3, 1)) -> tuple[Any, Any]:
    """Random tokens of these lengths, padded on the right, with labels or the tokens that follow."""
    rng = stream(1, "texts")
    x = torch.full((len(lengths), LENGTH), PADDING)
    y = torch.full((len(lengths), LENGTH), -100)
    for i, length in enumerate(lengths):
        tokens = torch.from_numpy(rng.integers(3, VOCABULARY, size=length + 1))
        x[i, :length], y[i, :length] = tokens[:-1], tokens[1:]
    return x, y if task == "continue" else torch.from_numpy(rng.integers(classes, size=len(lengths)))
