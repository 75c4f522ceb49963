"""Tasks of a node that are broken or none of ours: the site's process outlives them."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

pytest.importorskip("flwr")

from sordino.experiment.flower import executor
from sordino.federation.post import Letter


class Node:
    """Offers tasks without end."""

    def AcquireTask(self, request):  # noqa: N802 - Flower's name
        del request
        return SimpleNamespace(HasField=lambda name: name == "task", token="t")  # noqa: S106 - none

    def close(self):
        pass


def test_a_site_outlives_a_message_that_its_app_does_not_know(tmp_path, monkeypatch):
    """
    A coordinator sends a message of another kind, then ours.
    """
    ending, said, done = threading.Event(), [], []

    def do(address, token, app, in_hand):
        del address, token, in_hand
        if not done:
            done.append("strange")
            app(message=strange(), context=None)
        done.append("ours")
        ending.set()

    monkeypatch.setattr(executor, "_client", lambda *_: Node())
    monkeypatch.setattr(executor, "do", do)
    executor.work(tmp_path, 1, lambda _: Letter("x"), ending, said.append)
    assert done == ["strange", "ours"]
    assert said == ["a task of the node came to nothing: ValueError"]


def strange():
    metadata = SimpleNamespace(message_type="train.anything")
    return SimpleNamespace(metadata=metadata, has_content=lambda: True, has_error=lambda: False)
