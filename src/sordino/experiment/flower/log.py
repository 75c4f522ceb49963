"""Flower's log, kept to what goes wrong."""

from __future__ import annotations

import logging


def hush() -> None:
    """Keep Flower's steps out of our output; its warnings stay.

    Flower sets its logger's level when it is imported, so it is imported here first. By that level every step of a run
    would be printed as soon as any library has given Python's root logger a handler, as those of language models do.
    """
    from flwr.common.logger import FLOWER_LOGGER

    FLOWER_LOGGER.setLevel(logging.WARNING)
