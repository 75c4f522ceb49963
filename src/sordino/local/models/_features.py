"""What a frozen base makes of each text, computed once: where only the head is trained, it never changes.

tokens ──► known? ──► features ──► head ──► logits
              └ no: the whole network once, without gradients; what goes into the head is kept
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

MOST = 2**18
"""Texts that are kept: some hundreds of MB of features. What comes later is computed every time."""


class Features:
    """The head's inputs of the texts seen so far.

    Args:
        head: The only module that is trained. It must take one vector per text; `usable` says whether it does.
    """

    def __init__(self, head: nn.Module) -> None:
        self.usable = True
        self._head = (head,)  # in a tuple, so that it stays the network's own
        self._kept: dict[bytes, Tensor] = {}

    def logits(self, tokens: Tensor, run: Callable[[Tensor], Tensor]) -> Tensor:
        """The head's outputs, shape (batch, classes).

        Args:
            tokens: Shape (batch, time).
            run: The whole network, for texts that are not known.
        """
        keys = [row.tobytes() for row in tokens.cpu().numpy()]
        unknown = {key: i for i, key in enumerate(keys) if key not in self._kept}
        rows = list(unknown.values())
        if not rows and keys:
            return self._head[0](torch.stack([self._kept[key] for key in keys]))  # type: ignore[no-any-return]
        new = self._seen(tokens[rows], run) if rows else None
        if new is None:
            return run(tokens)
        made = dict(zip(unknown, new, strict=True))
        features = torch.stack([made[key] if key in made else self._kept[key] for key in keys])
        self._kept |= dict(list(made.items())[: max(0, MOST - len(self._kept))])
        return self._head[0](features)  # type: ignore[no-any-return]

    def _seen(self, tokens: Tensor, run: Callable[[Tensor], Tensor]) -> Tensor | None:
        """What the head is given for these texts, or None if that is not one vector each."""
        found: list[Tensor] = []
        handle = self._head[0].register_forward_pre_hook(lambda _, args: found.append(args[0]))
        try:
            with torch.no_grad():
                run(tokens)
        finally:
            handle.remove()
        self.usable = len(found) == 1 and found[0].dim() == 2 and len(found[0]) == len(tokens)
        return found[0].detach().clone() if self.usable else None
