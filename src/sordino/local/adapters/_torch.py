"""Building blocks of the adapter files; imported by them only when an adapter is attached."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import nn

from sordino.core.errors import ConfigError
from sordino.core.seeds import stream
from sordino.local.adapters._base import Base, Linear

TASKS = {"classify": "SEQ_CLS", "continue": "CAUSAL_LM"}


@contextlib.contextmanager
def drawn(seed: int, *index: int) -> Iterator[torch.Generator]:
    """A block that gives parameters their first values, from the seed alone."""
    with torch.no_grad():
        yield torch.Generator().manual_seed(int(stream(seed, "adapter", *index).integers(2**63)))


def lora_config(base: Base, targets: Sequence[Linear], *, rank: int, alpha: float) -> Any:
    """What PEFT needs to know to put plain LoRA on these maps, here and wherever the adapter is loaded."""
    return _peft().LoraConfig(
        r=rank,
        lora_alpha=alpha,
        # Full paths: a short name such as `dense` would mean maps outside the layers as well. PEFT has a name for none.
        target_modules=[linear.path for linear in targets] or "dummy-target-modules",
        fan_in_fan_out=any(linear.transposed for linear in targets),
        **common(base),
    )


def common(base: Base) -> dict[str, Any]:
    """What every PEFT configuration says about its base."""
    return {"task_type": TASKS[base.task], "base_model_name_or_path": base.name} | (
        {"modules_to_save": list(base.head_modules)} if base.head_modules else {}
    )


def injected(network: nn.Module, config: Any, paths: Sequence[str]) -> list[Any]:
    """The layers that PEFT puts in place of these; its own draws leave torch's global generator as it was."""
    # The head is trained where it lies; PEFT would put a copy beside it.
    config.modules_to_save = None
    with torch.random.fork_rng(devices=[]):
        _peft().inject_adapter_in_model(config, network)
    return [network.get_submodule(path) for path in paths]


def _peft() -> Any:
    try:
        import peft
    except ImportError as error:
        raise ConfigError.about("adapter", "PEFT is not installed", "pip install 'sordino[lm]'") from error
    return peft
