"""Every link inside the project leads somewhere."""

import re

import pytest
from documents import PAGES, ROOT, anchors, links, name


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_resolve(page):
    """Files exist, and headings too."""
    broken = []
    for target in links(page.read_text("utf-8")):
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        found = file.exists() and (not anchor or anchor in set(anchors(file.read_text("utf-8"))))
        broken += [] if found else [target]
    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_files_that_are_named_exist(page):
    """A test, a source file or an example that a page cites is there."""
    text = page.read_text("utf-8")
    cited = re.findall(r"`((?:tests|src|examples|docs|benchmarks)/[\w./-]+)`", text)
    cited += [f"src/sordino/{path}" for path in re.findall(r"`((?:[a-z]+/)+\w+\.py)`", text) if _in_package(path)]
    assert [path for path in cited if not (ROOT / path).exists()] == []


def test_every_page_is_reached():
    """From the README, by links alone."""
    reached, waiting = set(), [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md"]
    while waiting:
        page = waiting.pop()
        if page in reached or page.suffix != ".md":
            continue
        reached.add(page)
        targets = (target.partition("#")[0] for target in links(page.read_text("utf-8")))
        waiting += [(page.parent / path).resolve() for path in targets if path]
    assert {name(page) for page in PAGES} - {name(page) for page in reached} == set()


def test_a_broken_link_is_seen():
    """Negative control: links are found in prose and not in code."""
    assert links("[a](b.md#c) `[x](y)`\n```\n[d](e.md)\n```\n[f](https://g)") == ["b.md#c", "y"]
    assert list(anchors("## `sordino plan`\n### Two words, one\n")) == ["sordino-plan", "two-words-one"]


def _in_package(path: str) -> bool:
    return path.split("/", maxsplit=1)[0] not in {"tests", "src", "examples", "docs", "benchmarks"}
