"""`sordino data protect`: what is written, what it states, who pays, and what is refused before anything leaves."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest
from whole_runs import one_line, sordino

from sordino.core.types import Adjacency, Unit
from sordino.experiment import protect
from sordino.ledger import Account, Ledger, verify

TEXTS = ["wa met wb in 7", "wc is well", "12 of wd"]
WORDS = [
    "[PAD]",
    "[UNK]",
    *(f"w{chr(97 + i)}" for i in range(26)),
    "met",
    "in",
    "is",
    "well",
    "of",
    *map(str, range(20)),
]


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A tiny BERT and its vocabulary."""
    tiny_lm = pytest.importorskip("tiny_lm")
    folder = tiny_lm.tiny(tmp_path_factory.mktemp("base"), "bert")
    model = {"type": "WordPiece", "unk_token": "[UNK]", "vocab": {word: row for row, word in enumerate(WORDS)}}
    model |= {"continuing_subword_prefix": "##", "max_input_chars_per_word": 100}
    tokenizer = {"version": "1.0", "model": model, "added_tokens": [], "pre_tokenizer": {"type": "BertPreTokenizer"}}
    empty = dict.fromkeys(("normalizer", "post_processor", "decoder", "truncation", "padding"))
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer | empty), "utf-8")
    return folder


@pytest.fixture
def asked(tmp_path, base, capsys):
    """Calls the verb on three notes: exit code, stdout, stderr."""
    lines = [json.dumps({"note": text, "label": i, "id": f"p{i}"}) for i, text in enumerate(TEXTS)]
    file = tmp_path / "notes.jsonl"
    file.write_text("\n".join(lines) + "\n", "utf-8")

    def ask(how, *options, out="out.jsonl"):
        common = ("--text", "note", "--base", base, "--out", tmp_path / out)
        return sordino(capsys, "data", "protect", file, "--how", how, *common, *options)

    return ask


def rows(tmp_path, name="out.jsonl"):
    return [json.loads(line) for line in (tmp_path / name).read_text("utf-8").splitlines()]


def embed(tmp_path, *more):
    return ("embed", "--epsilon", 4, "--length", 8, "--ledger", tmp_path / "notes.db", *more)


class TestEmbed:
    def test_writes_vectors_and_a_statement_and_charges_for_them(self, asked, tmp_path):
        """
        The statement is printed and lies beside the file; its epsilon is the ledger's claim, per released embedding.
        """
        code, out, _ = asked(*embed(tmp_path, "--keep", "label", "--json"))

        statement = json.loads(out)
        written = rows(tmp_path)
        assert code == 0
        assert statement == json.loads((tmp_path / "out.jsonl.statement.json").read_text("utf-8"))
        assert [set(row) for row in written] == [{"label", "embedding"}] * 3
        assert np.shape([row["embedding"] for row in written]) == (3, 16)
        assert (statement["per"], statement["adjacency"], statement["test"]) == (
            "released embedding",
            "replace_one",
            False,
        )
        assert statement["columns_kept_unprotected"] == ["label"]
        assert "not the epsilon of training" in statement["guarantee"]
        assert statement["sha256"] == hashlib.sha256((tmp_path / "out.jsonl").read_bytes()).hexdigest()
        assert verify(tmp_path / "notes.db").ok
        with Ledger(tmp_path / "notes.db", read_only=True) as ledger:
            claim = ledger.claim(statement["run"], "notes")
        assert statement["epsilon"] == claim.epsilon == pytest.approx(4.0)
        assert statement["delta"] == claim.delta == 1e-5
        assert not [*tmp_path.glob("*.part")]

    def test_a_second_release_must_be_paid_for(self, asked, tmp_path):
        """
        The account adds up; one that was opened for two releases pays for two.
        """
        codes = [asked(*embed(tmp_path, "--releases", 2), out=f"{i}.jsonl")[0] for i in range(3)]

        assert codes == [0, 0, 3]
        assert not (tmp_path / "2.jsonl").exists()
        assert rows(tmp_path, "0.jsonl") != rows(tmp_path, "1.jsonl")
        with Ledger(tmp_path / "notes.db", read_only=True) as ledger:
            assert ledger.balance("notes").epsilon_used == pytest.approx(8.0)

    def test_a_crash_loses_the_charge_and_releases_nothing(self, asked, tmp_path, monkeypatch):
        """
        Between the draw and the file: the charge stays, the file is not there, and nothing is drawn again.
        """
        sound = protect.put
        monkeypatch.setattr(protect, "put", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        assert asked(*embed(tmp_path))[0] == 1
        monkeypatch.setattr(protect, "put", sound)

        assert not (tmp_path / "out.jsonl").exists()
        assert asked(*embed(tmp_path))[0] == 3

    def test_a_ledger_of_training_is_refused(self, asked, tmp_path):
        """
        Its accounts promise something else about the same people.
        """
        with Ledger(tmp_path / "notes.db") as ledger:
            ledger.open_account(Account("notes", Unit.RECORD, Adjacency.ADD_REMOVE, 9.0, 1e-4))

        code, _, error = asked(*embed(tmp_path))

        assert code == 2
        assert "ledger of their own" in one_line(error)
        assert not (tmp_path / "out.jsonl").exists()


class TestWords:
    def test_writes_texts_with_replaced_words(self, asked, tmp_path):
        """
        Kinds with an epsilon of their own, what passes, what has no vector; sums per text are stated.
        """
        (tmp_path / "names.txt").write_text("wa wb wc wd\nWolfgang\n", "utf-8")
        (tmp_path / "pass.txt").write_text("is\nof in", "utf-8")
        kinds = ("--kind", "name=0.5", "--list", f"name={tmp_path / 'names.txt'}", "--pass", tmp_path / "pass.txt")

        code, out, _ = asked("words", "--epsilon", 2, *kinds, "--group", 4, "--keep", "id", "--json")

        statement, written = json.loads(out), rows(tmp_path)
        assert code == 0
        assert [set(row) for row in written] == [{"id", "note"}] * 3
        assert all(
            row["note"].split()[place] in ("wa", "wb", "wc", "wd")
            for row, place in zip(written, (0, 0, 2), strict=True)
        )
        assert written[1]["note"].split()[1] == "is"
        assert {kind["name"]: (kind["epsilon"], kind["replaced"]) for kind in statement["kinds"]} == {
            "name": (0.5, 4),
            "number": (2.0, 2),
            "word": (2.0, 2),
        }
        assert statement["epsilon_per_text"] == {"largest": 5.0, "mean": pytest.approx((5.0 + 2.5 + 2.5) / 3)}
        assert statement["passed"] == 3
        assert statement["unit"] == "one word"
        assert "restricted by a policy" in statement["guarantee"]

    def test_only_named_kinds_are_replaced(self, asked, tmp_path):
        """
        Without --epsilon the rest passes, and the statement counts it.
        """
        code, out, _ = asked("words", "--kind", "number=1", "--json")

        assert code == 0
        assert json.loads(out)["passed"] == 9
        assert rows(tmp_path)[1]["note"] == TEXTS[1]


@pytest.mark.parametrize(
    ("how", "options"),
    [
        ("embed", ("--epsilon", 4)),
        ("embed", ("--ledger", "x.db")),
        ("embed", ("--epsilon", -1, "--ledger", "x.db")),
        ("embed", ("--epsilon", 4, "--ledger", "x.db", "--delta", 0)),
        ("embed", ("--epsilon", 4, "--ledger", "x.db", "--length", 4000)),
        ("embed", ("--epsilon", 4, "--ledger", "x.db", "--releases", 0)),
        ("embed", ("--epsilon", 4, "--ledger", "x.db", "--group", 3)),
        ("words", ()),
        ("words", ("--epsilon", 1, "--ledger", "x.db")),
        ("words", ("--epsilon", 1, "--clip", 1)),
        ("words", ("--epsilon", 1, "--keep", "note")),
        ("words", ("--epsilon", 1, "--keep", "nowhere")),
        ("words", ("--epsilon", 1, "--text", "nowhere")),
        ("words", ("--epsilon", 1, "--base", "./nowhere")),
        ("words", ("--epsilon", 1, "--list", "name=nowhere.txt")),
        ("words", ("--kind", "name=1")),
        ("words", ("--kind", "name=1", "--pattern", "name=(")),
        ("words", ("--kind", "number=much")),
        ("words", ("--epsilon", 1, "--group", 0)),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused_with_one_line(asked, tmp_path, monkeypatch, how, options):
    """
    Exit code 2; neither a file nor a charge is left.
    """
    monkeypatch.chdir(tmp_path)

    code, out, error = asked(how, *options)

    assert (code, out) == (2, "")
    one_line("\n".join(line for line in error.splitlines() if not line.startswith("opening a new ledger")))
    assert not (tmp_path / "out.jsonl").exists()
    if (tmp_path / "x.db").exists():
        with Ledger(tmp_path / "x.db", read_only=True) as ledger:
            assert ledger.accounts() == []


def test_nothing_is_written_over(asked, tmp_path):
    """
    Not even by the same command.
    """
    codes = [asked("words", "--epsilon", 1)[0] for _ in range(2)]

    assert codes == [0, 2]
