"""A pretrained network as its files describe it: names and shapes, read without torch.

config.json ───────────► architecture, number of layers, heads
*.safetensors headers ──► shapes of the layers' linear maps; which parameters of the head must be new
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from sordino.core.errors import ConfigError

if TYPE_CHECKING:
    from sordino.local.models._registry import Shapes

Task: TypeAlias = Literal["classify", "continue"]


@dataclass(frozen=True)
class Linear:
    """One linear map inside a numbered layer.

    Args:
        path: Its module's path in the network.
        layer: Number of its layer.
        inputs: Width of what goes in.
        outputs: Width of what comes out.
        transposed: Its weight is stored as (inputs, outputs), the way of GPT-2.
    """

    path: str
    layer: int
    inputs: int
    outputs: int
    transposed: bool = False


@dataclass(frozen=True)
class Base:
    """What an adapter must know of the network that it is put into.

    Args:
        name: What the user wrote; a saved adapter names it as its base.
        architecture: `model_type` of config.json.
        encoder: Whether tokens see those after them as well; None for an architecture that has no entry here.
        task: `classify` puts a new head on the network, `continue` keeps its own.
        linears: The linear maps of the layers, in the order of the modules.
        attention: Last names of the maps that adapters change unless told otherwise.
        head: Parameters that the task adds, in the order of the modules; none for `continue`.
        head_modules: The modules that hold them, as PEFT wants them named.
        layers: Number of layers.
        heads: Heads of keys and values.
        width: Width of one such head.
    """

    name: str
    architecture: str
    encoder: bool | None
    task: Task
    linears: tuple[Linear, ...]
    attention: tuple[str, ...]
    head: Shapes
    head_modules: tuple[str, ...]
    layers: int
    heads: int
    width: int


@dataclass(frozen=True)
class _Family:
    """Where architectures of one kind keep their parts: `backbone.layers.N.linear` is the path of a linear map."""

    backbone: str
    layers: str
    linears: tuple[str, ...]
    attention: tuple[str, ...]
    head: tuple[str, ...] = ("score",)
    encoder: bool = False
    pooler: tuple[str, ...] = ()
    transposed: bool = False


_SELF = ("attention.self.query", "attention.self.key", "attention.self.value")
_ENCODER = (*_SELF, "attention.output.dense", "intermediate.dense", "output.dense")
_DISTIL = (*(f"attention.{name}_lin" for name in ("q", "k", "v", "out")), "ffn.lin1", "ffn.lin2")
_DECODER = (*(f"self_attn.{name}_proj" for name in "qkvo"), *(f"mlp.{name}_proj" for name in ("gate", "up", "down")))
_GPT2 = ("attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj")
_LLAMA = _Family("model", "layers", _DECODER, ("q_proj", "v_proj"))

_FAMILIES = {
    "bert": _Family("bert", "encoder.layer", _ENCODER, ("query", "value"), ("classifier",), True, ("pooler.dense",)),
    "roberta": _Family(
        "roberta", "encoder.layer", _ENCODER, ("query", "value"), ("classifier.dense", "classifier.out_proj"), True
    ),
    "distilbert": _Family(
        "distilbert", "transformer.layer", _DISTIL, ("q_lin", "v_lin"), ("pre_classifier", "classifier"), True
    ),
    "gpt2": _Family("transformer", "h", _GPT2, ("c_attn",), transposed=True),
    **dict.fromkeys(("llama", "mistral", "qwen2", "qwen3", "smollm3", "gemma"), _LLAMA),
}


def described(folder: str, name: str, task: Task, classes: int) -> Base:
    """The base in a folder, from its config.json and the headers of its safetensors.

    Torch is imported for architectures only that have no entry in this file.

    Args:
        folder: Where the pretrained weights lie.
        name: What the user wrote.
        task: What the network is to do.
        classes: Number of classes, for `classify`.

    Raises:
        ConfigError: A file is missing, or is not what its architecture has.
    """
    config = _json(Path(folder) / "config.json")
    architecture, stored = str(config.get("model_type")), _stored(Path(folder))
    if architecture not in _FAMILIES:
        from sordino.local.adapters._inspect import inspected

        return inspected(folder, name, task, classes, stored)
    family = _FAMILIES[architecture]
    # Some files leave the backbone's name out.
    if not any(key.startswith(f"{family.backbone}.") for key in stored):
        stored = {f"{family.backbone}.{key}": shape for key, shape in stored.items()}
    layers = _first(config, "num_hidden_layers", "n_layer", "n_layers")
    heads = _first(config, "num_attention_heads", "n_head", "n_heads")
    hidden = _first(config, "hidden_size", "n_embd", "dim")
    head = _head(family, stored, hidden, classes) if task == "classify" else ()
    return Base(
        name,
        architecture,
        family.encoder,
        task,
        linears=tuple(_linear(family, stored, layer, part) for layer in range(layers) for part in family.linears),
        attention=family.attention,
        head=head,
        head_modules=head_modules(head, f"{family.backbone}."),
        layers=layers,
        heads=config.get("num_key_value_heads") or heads,
        width=config.get("head_dim") or hidden // heads,
    )


def _linear(family: _Family, stored: dict[str, tuple[int, ...]], layer: int, part: str) -> Linear:
    path = f"{family.backbone}.{family.layers}.{layer}.{part}"
    if len(shape := stored.get(f"{path}.weight", ())) != 2:
        raise ConfigError.about("base", "lacks a weight matrix that its architecture has", weight=f"{path}.weight")
    outputs, inputs = reversed(shape) if family.transposed else shape
    return Linear(path, layer, inputs, outputs, family.transposed)


def _head(family: _Family, stored: dict[str, tuple[int, ...]], hidden: int, classes: int) -> Shapes:
    """Parameters of the head. A pooler that the files lack is new as well, hence part of it."""
    poolers = (f"{family.backbone}.{part}" for part in family.pooler)
    paths = [*(path for path in poolers if f"{path}.weight" not in stored), *family.head]
    shapes: list[tuple[str, tuple[int, ...]]] = []
    for path in paths:
        width = classes if path == paths[-1] else hidden
        shapes.append((f"{path}.weight", (width, hidden)))
        shapes += [(f"{path}.bias", (width,))] if family.encoder else []
    return tuple(shapes)


def head_modules(head: Shapes, backbone: str) -> tuple[str, ...]:
    """The modules that hold a head: those beside the backbone by their first name, those in it by their path."""
    paths = (name.rpartition(".")[0] for name, _ in head)
    return tuple(dict.fromkeys(path if path.startswith(backbone) else path.split(".")[0] for path in paths))


def _stored(folder: Path) -> dict[str, tuple[int, ...]]:
    """Shapes of the stored tensors."""
    index = folder / "model.safetensors.index.json"
    files = sorted(set(_json(index)["weight_map"].values())) if index.exists() else ["model.safetensors"]
    return {name: shape for file in files for name, shape in _header(folder / file).items()}


def _header(file: Path) -> dict[str, tuple[int, ...]]:
    """The header of a safetensors file: eight bytes of length, then JSON."""
    try:
        with file.open("rb") as opened:
            (length,) = struct.unpack("<Q", opened.read(8))
            header = json.loads(opened.read(length))
    except (OSError, ValueError, struct.error) as error:
        raise ConfigError.about(
            "base", f"cannot be read as safetensors: {error}", "fetch or convert it again", file=str(file)
        ) from error
    return {name: tuple(entry["shape"]) for name, entry in header.items() if name != "__metadata__"}


def _json(file: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError.about(
            "base", f"cannot be read: {error}", "name a folder with config.json and safetensors", file=str(file)
        ) from error
    return content


def _first(config: dict[str, Any], *keys: str) -> int:
    for key in keys:
        if key in config:
            return int(config[key])
    raise ConfigError.about("base", f"config.json has none of {', '.join(keys)}")
