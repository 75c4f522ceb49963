"""What attacks are given, one kind a file. Experiments, test worlds and other frameworks provide them."""

from __future__ import annotations

from sordino.core.errors import ConfigError


class DoesNotFit(ConfigError):
    """The run has nothing that the attack could attack; the message says why, in a sentence."""
