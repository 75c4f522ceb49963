"""A pretrained language model that gives texts one of a few labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from sordino.local.adapters._base import Task
from sordino.local.models._pretrained import Pretrained
from sordino.local.models._registry import models


@models.register("text_classifier")
@dataclass(frozen=True)
class TextClassifier(Pretrained):
    """A pretrained network with a new classification head, one row of logits per text; only the adapter is trained.

    Args:
        base: A name of `sordino data fetch`, a folder, or a model's name on the hub.
        adapter: Which parameters are trained: one table, e.g. `ffa = { rank = 8 }`.
        length: Tokens per text; longer texts are cut.
        dropout: Of hidden values, in training. Attention has none.
        checkpointing: `non_reentrant` or `reentrant` computes the layers twice and keeps less in memory.
        quantise: `8bit` or `4bit` loads the frozen base in fewer bits, by bitsandbytes.
    """

    example: ClassVar[dict[str, Any]] = {"base": "minilm", "length": 64, "adapter": {"ffa": {"rank": 8}}}
    task: ClassVar[Task] = "classify"
