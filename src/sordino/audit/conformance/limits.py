"""Calls into somebody else's code: what became of them, and an end to those that never end."""

from __future__ import annotations

import contextlib
import enum
import io
import logging
import os
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from sordino.audit.conformance.protocol import NotApplicable, Refused

T = TypeVar("T")


class Endless(BaseException):
    """The time is over. No Exception, so that the code under test cannot swallow it."""


class How(enum.Enum):
    """What became of a call."""

    RETURNED = "returned"
    REFUSED = "refused"
    INAPPLICABLE = "inapplicable"
    RAISED = "raised"
    ENDLESS = "endless"


@dataclass(frozen=True)
class Attempt(Generic[T]):
    """What became of a call.

    Args:
        how: In a word.
        value: What it returned, if it did.
        says: Its message, if it raised.
    """

    how: How
    value: T | None = None
    says: str = ""


def attempt(call: Callable[[], T], limit_s: float = 20.0) -> Attempt[T]:
    """Make a call and say what became of it; its warnings, logs and prints are swallowed."""
    try:
        with quietly(), within(limit_s):
            return Attempt(How.RETURNED, call())
    except Refused as refusal:
        return Attempt(How.REFUSED, says=str(refusal))
    except NotApplicable as reason:
        return Attempt(How.INAPPLICABLE, says=str(reason))
    except Endless:
        return Attempt(How.ENDLESS, says=f"still running after {limit_s:g} CPU s")
    except Exception as error:  # noqa: BLE001 - whatever foreign code raises is the finding
        first = (str(error).strip().splitlines() or [""])[0]
        return Attempt(How.RAISED, says=f"{type(error).__name__}: {first[:160]}")


@contextlib.contextmanager
def within(limit_s: float) -> Iterator[None]:
    """Raise `Endless` in the body after so many seconds of CPU time, or twenty times as many on the clock.

    CPU time first: a busy machine is not an endless loop. Needs POSIX signals and the main thread; elsewhere there is
    no limit.
    """
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def over(number: int, frame: FrameType | None) -> None:
        del number, frame
        raise Endless

    timers = ((signal.ITIMER_PROF, signal.SIGPROF, limit_s), (signal.ITIMER_REAL, signal.SIGALRM, 20 * limit_s))
    before = [(signal.signal(number, over), signal.setitimer(timer, limit)[0]) for timer, number, limit in timers]
    try:
        yield
    finally:
        # An outer limit, such as a test runner's, goes on.
        for (timer, number, _), (handler, left) in zip(timers, before, strict=True):
            signal.setitimer(timer, left)
            signal.signal(number, handler or signal.SIG_DFL)


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Nothing of what foreign code logs, warns or prints."""
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)


def in_child(compute: Callable[[], NDArray[np.float64]]) -> NDArray[np.float64]:
    """What a forked child computes: nothing but its answer comes back.

    Raises:
        RuntimeError: It ended without an answer.
    """
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        try:
            with os.fdopen(write, "wb") as pipe:
                pipe.write(compute().tobytes())
        finally:
            os._exit(0)  # nothing of the parent's runs twice
    os.close(write)
    try:
        with os.fdopen(read, "rb") as pipe:
            values = np.frombuffer(pipe.read())
    except BaseException:
        os.kill(child, signal.SIGKILL)
        raise
    finally:
        os.waitpid(child, 0)
    if not values.size:
        raise RuntimeError("it ended without an answer")
    return values
