"""A pretrained network behind the house's interface: tokens in, logits out, nothing trainable but the adapter.

tokens (batch, time), padded on the right ─► cut to the longest ─► network ─► (batch, classes)
                                                                          └► (batch, time, vocabulary)
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from sordino.core.errors import ConfigError
from sordino.local.adapters._adapter import Adapter
from sordino.local.adapters._base import Base
from sordino.local.adapters._torch import drawn, transformers
from sordino.local.models._features import Features
from sordino.local.models._registry import InputSpec

SMOOTH = ("gelu", "silu", "swish", "tanh", "mish")
"""Parts of the names of activations without kinks."""


class LanguageModel(nn.Module):
    """A frozen base with an adapter in it.

    Args:
        network: The base, as transformers loads it, with the adapter attached.
        adapter: Which parameters are trained, and how they are saved.
        base: What the network is.
        padding: The token that fills short texts up; None where there is none.
        quantise: How the base was loaded.
        features: What the base makes of texts, where nothing of it is ever trained.
    """

    def __init__(
        self,
        network: nn.Module,
        adapter: Adapter,
        base: Base,
        padding: int | None,
        quantise: str = "none",
        features: Features | None = None,
    ) -> None:
        super().__init__()
        self.network, self.features = network, features
        self.adapter, self.base, self.padding, self.quantise = adapter, base, padding, quantise

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits, shape (batch, classes) or (batch, time, vocabulary); those of padding are 0 and mean nothing."""
        if self.features is not None and self.features.usable:
            return self.features.logits(tokens, self._run)
        return self._run(tokens)

    def _run(self, tokens: Tensor) -> Tensor:
        time = tokens.shape[1]
        counted = self._counted(tokens)
        width = max(1, int(counted.any(dim=0).sum())) if self.smooth else time
        tokens, counted = tokens[:, :width], counted[:, :width]
        # Padding comes after all that counts: an attention that looks back only needs no mask.
        mask = {"attention_mask": counted.long()} if self.base.task == "classify" else {}
        logits: Tensor = self.network(
            input_ids=tokens, **mask | self.adapter.context(self.network, self.base, counted)
        ).logits
        if self.base.task == "classify" or width == time:
            return logits
        return functional.pad(logits, (0, 0, 0, time - width))

    @property
    def smooth(self) -> bool:
        """Whether the network has no kinks, so that last bits stay last bits. If it may have, no batch is cut."""
        config: Any = self.network.config
        names = (getattr(config, key, None) for key in ("hidden_act", "hidden_activation", "activation_function"))
        known = [name for name in (*names, getattr(config, "activation", None)) if name is not None]
        return bool(known) and all(any(part in str(name) for part in SMOOTH) for name in known)

    @property
    def numbers_per_token(self) -> int:
        """About how many numbers the backward pass needs of one token: of every layer, and of its logits."""
        config: Any = self.network.config
        width = config.hidden_size
        inner = getattr(config, "intermediate_size", None) or 4 * width
        logits = 3 * config.vocab_size if self.base.task == "continue" else 0
        return int(self.base.layers * (10 * width + 3 * inner) + logits)

    def _counted(self, tokens: Tensor) -> Tensor:
        """Which positions lie before the padding. The first always does, for attention to have something to look at."""
        if self.padding is None:
            return torch.ones_like(tokens, dtype=torch.bool)
        counted = (tokens != self.padding).flip(1).cumsum(1).flip(1) > 0
        counted[:, :1] = True
        return counted

    def active(self, round: int, client: int, clients: int) -> tuple[str, ...]:  # noqa: A002 - the word of the glossary
        """Names of the parameters that a client trains in a round."""
        names = tuple(name for name, parameter in self.named_parameters() if parameter.requires_grad)
        return self.adapter.active(names, round, client, clients)

    def tensors(self) -> dict[str, Tensor]:
        """What `save` writes, under PEFT's names, on the CPU."""
        found = self.adapter.tensors(self.network, self.base)
        return {name: found[name].detach().cpu().contiguous() for name in sorted(found)}

    def save(self, folder: Path) -> None:
        """Write the adapter as PEFT does, for `PeftModel.from_pretrained(base, folder)`."""
        from safetensors.torch import save_file

        config = self.adapter.config(self.base)
        config.inference_mode = True
        config.save_pretrained(str(folder))
        save_file(self.tensors(), folder / "adapter_model.safetensors", metadata={"format": "pt"})


def language_model(
    base: Base,
    adapter: Adapter,
    spec: InputSpec,
    seed: int,
    *,
    dropout: float = 0.0,
    checkpointing: str = "none",
    quantise: str = "none",
) -> LanguageModel:
    """The base of a spec's folder with an adapter, in training mode; what is new comes from the seed.

    Raises:
        ConfigError: A package is missing, or the base does not have what a key asks for.
    """
    trainable = [name for name, _ in adapter.shapes(base)]
    network, new = _loaded(base, spec, dropout, quantise)
    _draw_head(network, base, new, seed)
    network.requires_grad_(False)
    if checkpointing != "none":
        _checkpoint(network, reentrant=checkpointing == "reentrant")
    adapter.attach(network, base, seed)
    for name, parameter in network.named_parameters():
        parameter.requires_grad_(name in trainable)
    if trainable != (found := [name for name, parameter in network.named_parameters() if parameter.requires_grad]):
        raise ConfigError.about("base", "does not have the parameters that its files tell of", found=found)
    kept = not dropout and len(base.head_modules) == 1 and trainable == [name for name, _ in base.head]
    features = Features(network.get_submodule(base.head_modules[0])) if kept else None
    return LanguageModel(network, adapter, base, spec.padding, quantise, features).train()


def plain(base: Base, spec: InputSpec, dropout: float = 0.0, quantise: str = "none") -> Any:
    """The network of the files as transformers loads it, with a new head where the task needs one."""
    return _loaded(base, spec, dropout, quantise)[0]


def _loaded(base: Base, spec: InputSpec, dropout: float, quantise: str) -> tuple[Any, set[str]]:
    """The network, and the names of the parameters that the files lack."""
    config = transformers().AutoConfig.from_pretrained(spec.folder)
    _configure(config, base, spec, dropout)
    kind = "AutoModelForSequenceClassification" if base.task == "classify" else "AutoModelForCausalLM"
    with quietly(), torch.random.fork_rng(devices=[]):
        network, report = getattr(transformers(), kind).from_pretrained(
            spec.folder,
            config=config,
            dtype=torch.float32,
            attn_implementation="sdpa",
            ignore_mismatched_sizes=True,
            output_loading_info=True,
            **_quantised(quantise),
        )
    if dropout and not any(part.p for part in network.modules() if isinstance(part, nn.Dropout)):
        raise ConfigError.about(
            "model", "has no effect: the base drops no hidden values", "leave it out", dropout=dropout
        )
    return network, set(report["missing_keys"]) | {entry[0] for entry in report["mismatched_keys"]}


def _configure(config: Any, base: Base, spec: InputSpec, dropout: float) -> None:
    config.use_cache = False
    for key in list(config.to_dict()):
        if key.endswith(("dropout", "dropout_prob", "pdrop")):
            # Attention draws its dropout outside of modules, where the probe of independence cannot hold it still.
            setattr(config, key, 0.0 if "att" in key else dropout)
    if base.task == "classify":
        config.num_labels = spec.classes
        config.pad_token_id = spec.padding


def _draw_head(network: nn.Module, base: Base, new: set[str], seed: int) -> None:
    head = {name for name, _ in base.head}
    if strangers := sorted(new - head):
        raise ConfigError.about("base", "its files lack parameters, or have them in another shape", missing=strangers)
    with drawn(seed, 0) as generator:
        for name, _ in base.head:
            parameter = network.get_parameter(name)
            if name in new and parameter.dim() > 1:
                parameter.normal_(0.0, 0.02, generator=generator)
            elif name in new:
                parameter.zero_()


def _checkpoint(network: Any, *, reentrant: bool) -> None:
    # Renamed in transformers 5.24.
    enable = getattr(network, "activation_checkpointing_enable", None) or network.gradient_checkpointing_enable
    enable({"use_reentrant": reentrant})
    if reentrant:  # else nothing that enters a layer has a gradient, and autograd stops there
        network.enable_input_require_grads()


def _quantised(bits: str) -> dict[str, Any]:
    if bits == "none":
        return {}
    try:
        import bitsandbytes  # type: ignore[import-not-found]  # noqa: F401 - transformers imports it later, with a worse message
    except ImportError as error:
        raise ConfigError.about(
            "model", "needs bitsandbytes", "pip install 'sordino[quantised]'", quantise=bits
        ) from error
    # With a threshold, 8-bit maps treat a column by itself if any example of the batch is large there: examples would
    # reach each other's gradients.
    config = transformers().BitsAndBytesConfig(**{f"load_in_{bits}": True}, llm_int8_threshold=0.0)
    return {"quantization_config": config}


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """No reports of new heads and no progress bars: what is new is drawn and known here."""
    logging = transformers().utils.logging
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
