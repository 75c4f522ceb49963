"""Building blocks of the adapter files; imported by them only when an adapter is attached."""

from __future__ import annotations

import contextlib
import importlib
import inspect
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sordino.core.errors import ConfigError
from sordino.core.seeds import stream
from sordino.local.adapters._base import Base, Linear

TASKS = {"classify": "SEQ_CLS", "continue": "CAUSAL_LM"}


@contextlib.contextmanager
def drawn(seed: int, *index: int) -> Iterator[torch.Generator]:
    """A block that gives parameters their first values, from the seed alone; layers made in it draw theirs in vain."""
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        yield torch.Generator().manual_seed(int(stream(seed, "adapter", *index).integers(2**63)))


def lora_config(base: Base, targets: Sequence[Linear], *, rank: int, alpha: float) -> Any:
    """What PEFT needs to know to put plain LoRA on these maps, here and wherever the adapter is loaded."""
    return peft().LoraConfig(
        r=rank,
        lora_alpha=alpha,
        # Full paths: a short name such as `dense` would mean maps outside the layers as well. PEFT has a name for none.
        target_modules=[linear.path for linear in targets] or "dummy-target-modules",
        fan_in_fan_out=any(linear.transposed for linear in targets),
        **common(base),
    )


def common(base: Base) -> dict[str, Any]:
    """What every PEFT configuration says about its base; a local folder by its last name, for paths tell of people."""
    name = Path(base.name).expanduser()
    return {"task_type": TASKS[base.task], "base_model_name_or_path": name.name if name.exists() else base.name} | (
        {"modules_to_save": list(base.head_modules)} if base.head_modules else {}
    )


def head_of(network: nn.Module, base: Base, prefix: str) -> dict[str, Tensor]:
    """The head as it is saved. It always is: even an untrained one started at values that no file of the base has."""
    return {f"{prefix}.{name}": network.get_parameter(name) for name, _ in base.head}


def injected(network: nn.Module, config: Any, paths: Sequence[str]) -> list[Any]:
    """The layers that PEFT puts in place of these; its own draws leave torch's global generator as it was."""
    # The head is trained where it lies; PEFT would put a copy beside it.
    config.modules_to_save = None
    with torch.random.fork_rng(devices=[]):
        peft().inject_adapter_in_model(config, network)
    return [network.get_submodule(path) for path in paths]


def cache_argument(network: nn.Module) -> str:
    """What the network calls the keys and values of tokens read before; transformers renamed it in 5.24."""
    backbone: Any = getattr(network, str(network.base_model_prefix))
    return "cache" if "cache" in inspect.signature(backbone.forward).parameters else "past_key_values"


def peft() -> Any:
    """The package, imported late: it takes seconds."""
    return _imported("peft")


def transformers() -> Any:
    """The package, imported late as well."""
    return _imported("transformers")


def _imported(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ConfigError.about("model", f"{name} is not installed", "pip install 'sordino[lm]'") from error


class Blocks(nn.ModuleList):
    """A linear map cut by columns, each block a linear map on its own share of the input; outputs are added."""

    def __init__(self, whole: nn.Linear, count: int) -> None:
        blocks = []
        for weight in whole.weight.detach().chunk(count, dim=1):
            block = nn.Linear(weight.shape[1], weight.shape[0], bias=False, device=weight.device, dtype=weight.dtype)
            block.weight.copy_(weight)
            blocks.append(block)
        super().__init__(blocks)

    def forward(self, x: Tensor) -> Tensor:
        """The blocks' outputs, added. Shape (..., outputs)."""
        parts = [block(share) for block, share in zip(self, x.chunk(len(self), dim=-1), strict=True)]
        return torch.stack(parts).sum(dim=0)

    def joined(self) -> Tensor:
        """The weight of the whole map."""
        return torch.cat([block.get_parameter("weight") for block in self], dim=1)
