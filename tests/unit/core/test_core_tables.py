"""TOML tables become frozen dataclasses, strictly."""

from __future__ import annotations

import dataclasses
import enum
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sordino.core.errors import ConfigError
from sordino.core.registry import Registry, load, single
from sordino.core.tables import build, plain


class Colour(enum.StrEnum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Inner:
    norm: float


@dataclass(frozen=True)
class Outer:
    name: str
    inner: Inner
    count: int = 1
    on: bool = False
    limit: float | None = None
    parts: tuple[Inner, ...] = ()
    named: dict[str, float] = field(default_factory=dict)
    colour: Colour = Colour.RED
    mode: Literal["a", "b"] = "a"
    anything: Any = None
    hidden: int = field(default=0, metadata={"toml": False})


FULL = {
    "name": "x",
    "inner": {"norm": 1},
    "count": 2,
    "on": True,
    "limit": 3,
    "parts": [{"norm": 1}, {"norm": 2.5}],
    "named": {"p": 1},
    "colour": "blue",
    "mode": "b",
    "anything": [1, "two"],
}


def test_every_kind_of_field():
    """Nested tables, lists, options, enums, literals; whole numbers serve as floats."""
    value = build(Outer, FULL, "exp")
    assert value.inner == Inner(1.0)
    assert value.parts == (Inner(1.0), Inner(2.5))
    assert (value.limit, value.named, value.colour, value.mode) == (3.0, {"p": 1.0}, Colour.BLUE, "b")
    assert isinstance(value.limit, float)


def test_defaults():
    """Only keys without a default are required."""
    assert build(Outer, {"name": "x", "inner": {"norm": 1.0}}, "exp") == Outer("x", Inner(1.0))


@settings(deadline=None, max_examples=30, derandomize=True)
@given(st.text(), st.floats(allow_nan=False), st.integers(), st.none() | st.floats(allow_nan=False), st.booleans())
def test_plain_is_the_inverse(name, norm, count, limit, on):
    """Written out and read back, a value is the same."""
    value = Outer(name, Inner(norm), count, on, limit, (Inner(norm),), {"k": norm}, Colour.BLUE, "b")
    table = plain(value)
    del table["hidden"]
    assert build(Outer, table, "exp") == value


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"nmae": "x"}, "did you mean 'name'"),
        ({"hidden": 1}, "has no key 'hidden'"),
        ({"inner": 3}, "exp.inner: must be a table, not a number"),
        ({"inner": {}}, "exp.inner: lacks the key 'norm'"),
        ({"inner": {"norm": "1"}}, "exp.inner.norm: '1' must be a number"),
        ({"inner": {"norm": True}}, "must be a number"),
        ({"count": 1.5}, "must be a whole number"),
        ({"count": True}, "must be a whole number"),
        ({"on": 1}, "must be true or false"),
        ({"name": 1}, "must be a text"),
        ({"parts": {}}, "must be a list, not a table"),
        ({"parts": [{"norm": "x"}]}, r"exp.parts\[0\].norm"),
        ({"named": []}, "must be a table, not a list"),
        ({"colour": "bleu"}, "did you mean 'blue'"),
        ({"mode": "c"}, "'c' is not known"),
        ({"limit": "much"}, "must be a number"),
    ],
)
def test_mistakes_are_named(change, message):
    """The dotted place, what is wrong, and the nearest known name."""
    with pytest.raises(ConfigError, match=message):
        build(Outer, FULL | change, "exp")


class TestRegistry:
    """A class per name; the registry fills itself."""

    @pytest.fixture
    def shapes(self):
        registry = Registry("shapes")

        @registry.register("round")
        @dataclass(frozen=True)
        class Round:
            """A disc.

            More text.
            """

            radius: float
            example = {"radius": 2}  # noqa: RUF012

        return registry

    def test_build_example_and_name(self, shapes):
        """By name, from a table."""
        value = shapes.example("round")
        assert dataclasses.asdict(value) == {"radius": 2.0}
        assert shapes.build("round", {"radius": 1}).radius == 1.0
        assert (shapes.names(), shapes.name_of(value), shapes.summary("round")) == (["round"], "round", "A disc.")

    def test_unknown_name(self, shapes):
        """With the nearest."""
        with pytest.raises(ConfigError, match="did you mean 'round'"):
            shapes.get("rnd")

    def test_a_name_is_taken_once(self, shapes):
        """Two files with one name are a mistake."""
        with pytest.raises(ConfigError, match="twice"):
            shapes.register("round")(Inner)

    def test_single(self):
        """Exactly one named table."""
        assert single("strategy", {"adam": {"lr": 1}}) == ("adam", {"lr": 1})
        for wrong in ({}, {"a": {}, "b": {}}, 3):
            with pytest.raises(ConfigError, match="exactly one"):
                single("strategy", wrong)

    def test_load_imports_public_modules_only(self, tmp_path, monkeypatch):
        """A file registers itself by existing; one with an underscore does not."""
        package = tmp_path / "loaded_package"
        package.mkdir()
        (package / "__init__.py").write_text("seen = []\n")
        (package / "one.py").write_text("import loaded_package\nloaded_package.seen.append('one')\n")
        (package / "_two.py").write_text("raise RuntimeError\n")
        monkeypatch.syspath_prepend(str(tmp_path))
        load("loaded_package", [str(package)])
        import loaded_package

        assert loaded_package.seen == ["one"]
