"""A base whose architecture has no entry of its own: transformers builds it without weights, to be looked at."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from sordino.local.adapters._base import Base, Linear, Task, head_modules
from sordino.local.adapters._torch import transformers

_ATTENTION = (
    ("q_proj", "v_proj"),
    ("query", "value"),
    ("q_lin", "v_lin"),
    ("q", "v"),
    ("query_key_value",),
    ("qkv_proj",),
    ("Wqkv",),
    ("c_attn",),
)
"""What architectures call their queries and values, or both in one map."""


def inspected(folder: str, name: str, task: Task, classes: int, stored: dict[str, tuple[int, ...]]) -> Base:
    """What `described` says, for any architecture that transformers knows. Slow: it imports torch.

    Args:
        folder: Where config.json lies.
        name: What the user wrote.
        task: What the network is to do.
        classes: Number of classes, for `classify`.
        stored: Shapes of the stored tensors, under their own names.
    """
    config = transformers().AutoConfig.from_pretrained(folder)
    if task == "classify":
        config.num_labels = classes
    kind = "AutoModelForSequenceClassification" if task == "classify" else "AutoModelForCausalLM"
    with torch.device("meta"), torch.random.fork_rng(devices=[]):
        network = getattr(transformers(), kind).from_config(config)
    backbone = f"{network.base_model_prefix}."
    known = {key if key.startswith(backbone) else backbone + key for key in stored}
    shapes = [(key, tuple(value.shape)) for key, value in network.named_parameters()]
    head = tuple(x for x in shapes if x[0] not in known or not x[0].startswith(backbone)) if task == "classify" else ()
    linears = tuple(found for path, part in network.named_modules() if (found := _linear(path, part)))
    last = {linear.path.rpartition(".")[2] for linear in linears}
    heads = int(config.num_attention_heads)
    return Base(
        name,
        config.model_type,
        None,
        task,
        linears,
        attention=next((names for names in _ATTENTION if last.issuperset(names)), ()),
        head=head,
        head_modules=head_modules(head, backbone),
        layers=int(config.num_hidden_layers),
        heads=int(getattr(config, "num_key_value_heads", None) or heads),
        width=int(getattr(config, "head_dim", None) or config.hidden_size // heads),
    )


def _linear(path: str, part: Any) -> Linear | None:
    """The module as a linear map of a numbered layer, if it is one."""
    layer = next((int(step) for step in path.split(".") if step.isdigit()), None)
    transposed = type(part).__name__ == "Conv1D"
    if layer is None or not (transposed or isinstance(part, nn.Linear)):
        return None
    outputs, inputs = reversed(part.weight.shape) if transposed else part.weight.shape
    return Linear(path, layer, inputs, outputs, transposed)
