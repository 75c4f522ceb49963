"""Numbers and code on the pages are true."""

import doctest
import tomllib

import pytest
from documents import PAGES, ROOT, blocks, name

from sordino.core.registry import Registry
from sordino.core.types import RoundPlan, Update
from sordino.federation import stages as room

WITH_EXAMPLES = [page for page in PAGES if ">>>" in page.read_text("utf-8")]


@pytest.mark.parametrize("page", WITH_EXAMPLES, ids=name)
def test_examples_give_what_they_say(page):
    """Each page is one doctest."""
    result = doctest.testfile(str(page), module_relative=False)
    assert (result.failed, result.attempted > 0) == (0, True)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_toml_is_toml(page):
    """Every block that says so."""
    for text in blocks(page.read_text("utf-8"), "toml"):
        tomllib.loads(text)


def test_the_stage_of_the_extending_page_works(monkeypatch):
    """It registers itself, here into a registry that no other test sees, and keeps the largest coordinates."""
    own = Registry("stage")
    monkeypatch.setattr(room, "stages", own)
    (text,) = blocks((ROOT / "docs" / "extending.md").read_text("utf-8"), "python")
    exec(compile(text, "extending.md", "exec"), {"__name__": "extending"})  # noqa: S102 - the page's own code
    stage = own.example("topk")
    update = Update(vector=room_vector())
    kept = stage.client(update, RoundPlan(round=0, rounds=1, groups=(), expected=1.0)).vector
    assert kept.tolist() == [0.0] * 9 + [-10.0]


def room_vector():
    import numpy as np

    return np.array([1, 2, 3, 4, 5, 6, 7, 8, 9, -10], np.float32)
