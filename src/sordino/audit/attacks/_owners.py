"""What is promised to the owner of a text that joins a training or not, where it is not all that the owner has."""

from __future__ import annotations

from sordino.audit.promise import Promise
from sordino.audit.subjects import DoesNotFit
from sordino.core.errors import PrivacyError
from sordino.core.types import Unit


def of_one_text(promise: Promise | None, staying: tuple[Unit, ...]) -> Promise | None:
    """The promise that one text more or less is tested against.

    Args:
        promise: Of the run.
        staying: Units that have other texts beside it: they change, and neither come nor go.

    Raises:
        DoesNotFit: What is promised for a change has no price.
    """
    if promise is None or promise.unit not in staying:
        return promise
    try:
        return promise.when_changed()
    except PrivacyError:
        raise DoesNotFit("nobody has priced what is promised to the owner of one text that comes or goes.") from None


def in_words(promise: Promise | None, tested: Promise | None) -> str:
    """Why another epsilon than the run's is named, if so."""
    if promise is None or tested is None or tested.adjacency is promise.adjacency:
        return ""
    owner = "person" if promise.unit is Unit.USER else promise.unit
    return (
        f" A text more or less changes a {owner} that stays, and moves a sum twice as far: "
        f"epsilon {tested.epsilon:.3g} is what the noise of epsilon {promise.epsilon:.3g} promises of that."
    )
