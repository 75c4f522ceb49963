"""One vector per text, clipped and noised: what a site may send in place of a text.

    text ──public model──► states (tokens, d) ──mean──► vector (d,) ──clip C──┐
    text ──public model──► states (tokens, d) ──mean──► vector (d,) ──clip C──┴ side by side ──door──► (texts, d)

Each text has a place of its own in the released matrix, so one text moves one row: replaced by another, by 2C at most.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sordino.core import checks
from sordino.core.errors import ConfigError
from sordino.core.types import Unit, Vector
from sordino.local.adapters._torch import transformers
from sordino.local.evaluate import evaluating
from sordino.local.models._language import quietly
from sordino.privacy.doors import Release
from sordino.privacy.kernel import Private

EXTRA = "pip install 'sordino[lm]'"
BATCH = 16
"""Texts per forward pass; always so many, because another shape has other last bits."""

LARGEST = 2**28
"""Most numbers of one release: 2 GiB while it is computed."""


def released(vectors: NDArray[Any], clip: float, release: Release) -> NDArray[np.float32]:
    """The texts' vectors, each clipped to norm `clip` and noised, in their order.

    Args:
        vectors: Private. Shape (texts, d). A vector that is not finite counts as zero and gets its noise.
        clip: L2 norm C of one vector.
        release: Adds the noise; the caller has reserved one release.

    Returns:
        Shape (texts, d), public.

    Guarantee:
        Row i depends on text i alone, and replacing that text moves what is released by at most 2C.

    Source: Du et al. (2023), arXiv:2309.06746, who noise inside a forward pass; here one pooled vector per text.
    """
    texts, d = vectors.shape
    if texts == 0:
        raise ConfigError.about("embeddings", "has no texts", "give some")
    if texts * d > LARGEST:
        raise ConfigError.about(
            "embeddings", f"is more than {LARGEST // d} texts", "split the file, an account for each part", texts=texts
        )
    first, *others = (Private(row, Unit.RECORD).clip(l2=clip) for row in vectors)
    noised: Vector = release(first.beside(*others))
    return noised.reshape(texts, d)


def sentence_vectors(folder: Path, texts: Sequence[str], *, length: int = 128) -> NDArray[np.float32]:
    """The mean of a public model's last states over each text's tokens. Private.

    Args:
        folder: The base model's: config.json, weights and tokenizer.json.
        texts: What to embed.
        length: Tokens of a text, public; what comes later is cut off.

    Returns:
        Shape (texts, d). A text without tokens has the vector zero.

    Raises:
        ConfigError: A library is missing, or the folder holds no such model.
    """
    checks.count("embeddings", length=length)
    model, tokenizer = _loaded(folder, length)
    parts = []
    with torch.no_grad(), evaluating(model):
        for tokens, counted in _batches(tokenizer, texts, length):
            states = model(input_ids=tokens, attention_mask=counted).last_hidden_state
            weight = counted.unsqueeze(-1).to(states.dtype)
            parts.append((states * weight).sum(1) / weight.sum(1).clamp(min=1))
    return torch.cat(parts)[: len(texts)].float().numpy()


def _batches(tokenizer: Any, texts: Sequence[str], length: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Tokens and which of them count, shape (BATCH, length); the last batch is filled up with its own texts."""
    for start in range(0, len(texts), BATCH):
        some = texts[start : start + BATCH]
        encodings = tokenizer.encode_batch([some[i % len(some)] for i in range(BATCH)])
        tokens, counted = np.zeros((2, BATCH, length), dtype=np.int64)
        for row, encoding in enumerate(encodings):
            tokens[row, : len(encoding.ids)], counted[row, : len(encoding.ids)] = encoding.ids, 1
        yield torch.from_numpy(tokens), torch.from_numpy(counted)


def _loaded(folder: Path, length: int) -> tuple[torch.nn.Module, Any]:
    """The model, and its tokenizer set to cut texts at a length."""
    try:
        from tokenizers import Tokenizer
    except ImportError as missing:
        raise ConfigError.about("embeddings", f"needs {missing.name}", EXTRA) from None
    try:
        with quietly():
            model = transformers().AutoModel.from_pretrained(folder, local_files_only=True, dtype=torch.float32)
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    except Exception as problem:  # noqa: BLE001 - tokenizers raises nothing more special
        first = (str(problem).splitlines() or [type(problem).__name__])[0]
        raise ConfigError.about("embeddings", f"cannot be loaded: {first}", folder=str(folder)) from None
    longest = getattr(model.config, "max_position_embeddings", length)
    if length > longest:
        raise ConfigError.about("embeddings", f"is more than the model's {longest}", "lower it", length=length)
    tokenizer.no_padding()
    tokenizer.enable_truncation(max_length=length)
    return model, tokenizer
