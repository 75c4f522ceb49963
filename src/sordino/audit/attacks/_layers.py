"""Which tensors of a message tell most: the first linear layer, and the one that makes the logits."""

from __future__ import annotations

import torch
from torch import nn

from sordino.audit.subjects import DoesNotFit
from sordino.audit.subjects.message import Message
from sordino.core.types import Group


def first_linear(message: Message) -> tuple[slice, slice]:
    """Where the weight and the bias of the first layer lie, if it is a linear map of the record itself.

    Raises:
        DoesNotFit: It is not, or it sends no bias to divide by.
    """
    record = torch.from_numpy(message.batches[0].x[:1]).float()
    places = {group.name: group for group in message.layout.groups}
    for name, part in message.module.named_modules():
        if not isinstance(part, nn.Linear):
            continue
        weight, bias = places.get(f"{name}.weight"), places.get(f"{name}.bias")
        if weight is not None and bias is not None and _takes(message.module, part, record):
            return slice(weight.start, weight.stop), slice(bias.start, bias.stop)
    raise DoesNotFit("the model has no linear layer, with a bias, on the record itself: cosine_tv attacks others.")


def last_layer(message: Message) -> tuple[Group | None, Group, int]:
    """The bias of the logits where there is one, their weight, and the number of logits.

    Raises:
        DoesNotFit: The logits are not made by a trained linear map.
    """
    shapes = dict(zip([group.name for group in message.layout.groups], message.layout.shapes, strict=True))
    places = {group.name: group for group in message.layout.groups}
    names = [name for name, shape in shapes.items() if len(shape) == 2 and name.endswith("weight")]
    outputs = _logits(message)
    if not names or shapes[names[-1]][0] != outputs:
        raise DoesNotFit("messages hold no gradient of the layer that makes the logits.")
    bias = places.get(names[-1].removesuffix("weight") + "bias")
    return bias, places[names[-1]], outputs


def _logits(message: Message) -> int:
    first = message.batches[0].x[:1]
    x = torch.from_numpy(first)
    with torch.no_grad():
        return int(message.module(x.float() if x.is_floating_point() else x.long()).shape[-1])


def _takes(module: nn.Module, part: nn.Module, record: torch.Tensor) -> bool:
    """Whether a layer is given the record's own numbers, in their order."""
    seen: list[torch.Tensor] = []
    handle = part.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    try:
        with torch.no_grad():
            module(record)
    finally:
        handle.remove()
    return bool(seen) and seen[0].numel() == record.numel() and torch.equal(seen[0].flatten(), record.flatten())
