"""Who may see each tensor of a model, and the refusal of releases that hang on private ones.

A clipped gradient sum is bounded when one record moves only its own term. A head, adapter or optimiser state that
was fitted to the silo's records without noise moves *every* term when one record goes: the sum then moves by up to
twice the clip times the batch, however well each gradient was clipped.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from torch import nn

from sordino.core.checks import nearest
from sordino.core.errors import ConfigError, PrivacyError
from sordino.core.types import Unit, Visibility
from sordino.local.layout import Layout

WAYS = (
    "train it with noise inside the same clip; or refresh it only after the last shared release; or take the shared "
    "gradients at a public value of it and personalise afterwards; or protect whole clients (unit = 'client')"
)


def classify(model: nn.Module, layout: Layout, private: Collection[str] = ()) -> dict[str, Visibility]:
    """The visibility of every parameter and buffer.

    What is in the layout changes by released sums only, so it is `released`. What is frozen is `public`. What is
    declared, what trains outside the layout, and the running statistics of a batch norm in train mode are `private`.

    Args:
        model: In the mode it is to train in.
        layout: The parameters that are released.
        private: Names of tensors or modules that a silo fits without noise, e.g. `("head",)`.

    Raises:
        ConfigError: A declared name does not exist.
    """
    released = {group.name for group in layout.groups}
    states = {
        name: Visibility.RELEASED
        if name in released
        else Visibility.PRIVATE
        if parameter.requires_grad
        else Visibility.PUBLIC
        for name, parameter in model.named_parameters()
    }
    moving = _running_statistics(model)
    for name, _ in model.named_buffers():
        states[name] = Visibility.PRIVATE if name in moving else Visibility.PUBLIC
    for declared in private:
        members = [name for name in states if name == declared or name.startswith(f"{declared}.")]
        if not members:
            raise ConfigError.about("state", "is no tensor or module", nearest(declared, states), private=declared)
        states.update(dict.fromkeys(members, Visibility.PRIVATE))
    return states


def refuse_private_dependence(unit: Unit, states: Mapping[str, Visibility]) -> None:
    """Refuse a release per record or user whose gradients depend on a private tensor.

    Args:
        unit: Whose presence the release hides. A client's whole update is bounded, whatever made it.
        states: Everything that the shared gradients depend on, from `classify`; add what lies outside the model,
            such as raw optimiser moments, under a name of its own.

    Raises:
        PrivacyError: Some tensor is private; the message names it and the four sound ways.
    """
    found = sorted(name for name, state in states.items() if state is Visibility.PRIVATE)
    if unit is Unit.CLIENT or not found:
        return
    raise PrivacyError.about(
        "state",
        "depends on this silo's records without noise, so one record moves every clipped gradient",
        WAYS,
        unit=unit.value,
        private=", ".join(found),
    )


def _running_statistics(model: nn.Module) -> set[str]:
    return {
        f"{name}.{buffer}" if name else buffer
        for name, part in model.named_modules()
        if isinstance(part, nn.modules.batchnorm._NormBase) and part.training  # noqa: SLF001 - the only common base class
        for buffer, _ in part.named_buffers(recurse=False)
    }
