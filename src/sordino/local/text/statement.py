"""What each way of protecting a text promises, in its own words. Neither promise is the epsilon of training."""

from __future__ import annotations

from collections.abc import Sequence

from sordino.local.text.policy import Policy

NOT_TRAINING = (
    "This is not the epsilon of training: what a model learns from the same texts is charged apart, and adds to it."
)


def of_embeddings(epsilon: float, delta: float) -> str:
    """The promise for released embeddings.

    >>> of_embeddings(4.0, 1e-5)[:80]
    'Per released embedding: whatever text stood in its place, the same row could hav'
    """
    return (
        "Per released embedding: whatever text stood in its place, the same row could have come out, with "
        f"probabilities that differ by a factor of e^{epsilon:.4g} at most, up to a probability of {delta:.3g} (local "
        "differential privacy, replace one text). Further releases of the same texts add up in the account. Not "
        "protected: how many texts there are, their order, and every column that was kept. "
        f"{NOT_TRAINING}"
    )


def of_words(policy: Policy) -> str:
    """The promise for texts with replaced words."""
    each = ", ".join(f"{kind.epsilon:.4g} for {kind.name}" for kind in policy.kinds)
    return (
        "Per replaced word, restricted by a policy: two texts that differ in one word, by words of one kind and one "
        f"public group, give any result with probabilities that differ by a factor of e^epsilon at most ({each}). "
        "Words of one kind without a vector all become the same sign. Several words, and several runs over the same "
        "texts, add up. Not protected: which kind and group a word is of, how many words there are, what stands "
        "between them, words that the policy misses or lets pass, and every column that was kept. "
        f"{NOT_TRAINING}"
    )


def per_text(epsilons: Sequence[float]) -> dict[str, float]:
    """Sums over each text's replaced words: the price of a text that differs in all of them.

    >>> per_text([1.0, 4.0])
    {'largest': 4.0, 'mean': 2.5}
    """
    return {"largest": max(epsilons, default=0.0), "mean": sum(epsilons) / max(1, len(epsilons))}
