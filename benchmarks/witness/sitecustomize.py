"""What crosses between coordinator and sites, written down by the kill study. Python imports this before all else.

A line for each letter of a round with a vector in it, in a file of its own process: what a coordinator sends and gets,
and what a site gets and sends. It is written before the letter leaves, so that a kill can hide nothing that was sent.
And a site pauses before it reads such a letter, and before its answer leaves: moments in which it may be killed.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from functools import wraps
from pathlib import Path
from typing import Any

PAUSE_S = 0.3


def watch(name: str, folder: Path, pause_s: float = 0.0) -> None:
    """Stand between the letters of this process and Flower's messages, and pause at each."""
    from sordino.federation.engines import flower

    place = folder / f"{name}-{os.getpid()}-{time.monotonic_ns()}.jsonl"

    def note(way: str, letter: Any) -> None:
        if letter.action != "train" or letter.vector is None:
            return
        fields = {key: letter.fields[key] for key in ("plan", "round", "grant") if key in letter.fields}
        line = {"by": name, "way": way, "sha256": hashlib.sha256(letter.vector.tobytes()).hexdigest(), **fields}
        with place.open("a") as file:
            file.write(json.dumps({**line, "at": time.time()}) + "\n")
        time.sleep(pause_s)

    got, sent, replied = flower.letter_of, flower.message_of, flower.reply_of

    @wraps(got)
    def letter_of(message: Any) -> Any:
        letter = got(message)
        note("got", letter)
        return letter

    @wraps(sent)
    def message_of(letter: Any, *rest: Any) -> Any:
        note("sent", letter)
        return sent(letter, *rest)

    @wraps(replied)
    def reply_of(letter: Any, asked: Any) -> Any:
        note("sent", letter)
        return replied(letter, asked)

    flower.letter_of, flower.message_of, flower.reply_of = letter_of, message_of, reply_of


if "SORDINO_WITNESS" in os.environ:
    words = sys.orig_argv
    if "serve" in words and "silo" in words:
        watch(Path(words[-1]).name, Path(os.environ["SORDINO_WITNESS"]), PAUSE_S)
    elif "run" in words and "--federation" in words:
        watch("coordinator", Path(os.environ["SORDINO_WITNESS"]))
