"""Tokens of texts: which ones a model sees, and which ones it is to learn."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tiny_tokenizer
from sordino.core.errors import ConfigError
from sordino.data import Message, Texts
from sordino.data.examples import IGNORE
from sordino.data.pretrained import located
from sordino.data.tokenise import encode

tokenizers = pytest.importorskip("tokenizers")
pytest.importorskip("jinja2")

ASK = Message("user", "What is the heart?")
TELL = Message("assistant", "The heart is a muscle.")
MORE = Message("user", "Is it <|end|> kind?")
LAST = Message("assistant", "  To be, émigré 🎉\n")

words = st.text(st.sampled_from("ab é🎉\n .<|>"), min_size=1, max_size=12).filter(str.strip)
conversations = st.lists(words, min_size=2, max_size=5).map(
    lambda said: tuple(Message(("user", "assistant")[i % 2], text) for i, text in enumerate(said))
)


def reader(folder):
    return tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))


def text_of(folder, tokens):
    return reader(folder).decode([int(token) for token in tokens], skip_special_tokens=False)


def base(name):
    """A real base of the cache, or a skipped test."""
    try:
        return located(name)
    except ConfigError as reason:
        pytest.skip(str(reason))


class TestContinue:
    def test_every_token_of_a_plain_text_is_predicted_and_then_its_end(self, tiny_tokenizer_folder):
        """The target is the next token; padding is no target."""
        told = "To be, or not to be"

        examples = encode(Texts(records=(told,)), tiny_tokenizer_folder, length=64, task="continue")

        (x,), (y,) = examples.x, examples.y
        n = int((y != IGNORE).sum())
        assert text_of(tiny_tokenizer_folder, [x[0], *y[:n]]) == told + "<|end|>"
        assert np.array_equal(x[1:n], y[: n - 1])
        assert (x[n:] == examples.padding).all()
        assert (y[n:] == IGNORE).all()
        assert (examples.classes, examples.vocabulary, examples.padding) == (400, 400, 0)

    def test_only_what_the_assistant_says_counts(self, tiny_tokenizer_folder):
        """Each answer and its end-of-turn token; not the prompt, and no white space of the template."""
        record = (Message("system", "You are kind."), ASK, TELL, MORE, LAST)

        examples = encode(Texts(records=(record,)), tiny_tokenizer_folder, length=256, task="continue")

        (x,), (y,) = examples.x, examples.y
        counted = text_of(tiny_tokenizer_folder, y[y != IGNORE])
        assert counted == "The heart is a muscle.<|end|>  To be, émigré 🎉\n<|end|>"
        seen = text_of(tiny_tokenizer_folder, x[x != examples.padding])
        assert seen.startswith("<|start|>system\nYou are kind.<|end|>\n<|start|>user\nWhat is")

    @given(record=conversations)
    def test_any_conversation_is_learnt_word_for_word(self, tiny_tokenizer_folder, record):
        """
        The counted tokens spell the assistant's turns, whatever is said. (Where an answer begins with white space,
        the tokenizer may put it into one token with the template's line break, which then comes along.)
        """
        examples = encode(Texts(records=(record,)), tiny_tokenizer_folder, length=400, task="continue")

        said = "".join(f"{message.content}<|end|>" for message in record if message.role == "assistant")
        counted = text_of(tiny_tokenizer_folder, examples.y[examples.y != IGNORE])
        assert counted.replace("\n", "") == said.replace("\n", "")

    @given(records=st.lists(st.one_of(words, conversations), min_size=2, max_size=4), length=st.integers(1, 40))
    @pytest.mark.parametrize("task", ["classify", "continue"])
    def test_a_record_is_encoded_by_itself(self, tiny_tokenizer_folder, records, length, task):
        """Its row is the same whoever else is there, and in whatever order: neighbouring files differ in one row."""
        texts = Texts(records=tuple(records), y=np.zeros(len(records), np.int64), classes=2)

        together = encode(texts, tiny_tokenizer_folder, length=length, task=task)

        for i, record in enumerate(records):
            alone = replace(texts, records=(record,), y=np.zeros(1, np.int64))
            row = encode(alone, tiny_tokenizer_folder, length=length, task=task)
            assert np.array_equal(row.x[0], together.x[i])
            assert np.array_equal(row.y[0], together.y[i])

    def test_a_long_prompt_leaves_a_record_that_teaches_nothing(self, tiny_tokenizer_folder):
        """The number of records is public, so it must not depend on what they say."""
        examples = encode(Texts(records=((ASK, TELL), "film")), tiny_tokenizer_folder, length=4, task="continue")

        assert len(examples) == 2
        assert (examples.y[0] == IGNORE).all()
        assert (examples.x[0] != examples.padding).all()
        assert (examples.y[1] != IGNORE).any()

    def test_the_last_place_predicts_the_token_behind_it(self, tiny_tokenizer_folder):
        """A text is cut after length + 1 tokens, of which the last is only a target."""
        told = "To be, or not to be: that is the question."
        full = encode(Texts(records=(told,)), tiny_tokenizer_folder, length=64, task="continue")

        cut = encode(Texts(records=(told,)), tiny_tokenizer_folder, length=3, task="continue")

        assert np.array_equal(cut.x[0], full.x[0, :3])
        assert np.array_equal(cut.y[0], full.y[0, :3])
        assert (cut.y != IGNORE).all()

    def test_a_conversation_without_answers_is_refused(self, tiny_tokenizer_folder):
        """Nothing could be learnt from it."""
        with pytest.raises(ConfigError, match="record 1 has no turn of the assistant"):
            encode(Texts(records=("film", (ASK,))), tiny_tokenizer_folder, length=8, task="continue")


class TestClassify:
    TEXTS = Texts(
        records=("What a fine film!", "What a dull, long and silly film."),
        y=np.array([1, 0]),
        classes=2,
        client=np.array(["a", "b"]),
        group=np.array(["open", "strict"]),
        public=True,
        source="here",
    )

    def test_labels_and_belonging_come_along(self, tiny_tokenizer_folder):
        """Short texts are filled up at the end, long ones cut."""
        examples = encode(self.TEXTS, tiny_tokenizer_folder, length=8, task="classify")

        assert examples.y.tolist() == [1, 0]
        assert examples.client.tolist() == ["a", "b"]
        assert examples.group.tolist() == ["open", "strict"]
        assert (examples.classes, examples.public, examples.source) == (2, True, "here")
        assert text_of(tiny_tokenizer_folder, examples.x[0]).startswith("What a fine film!<|pad|>")
        assert (examples.x[1] != examples.padding).all()

    def test_the_special_token_at_the_end_stays(self, tiny_tokenizer_folder, tmp_path):
        """Whatever length the tokenizer's own file asks for."""
        tokenizer = reader(tiny_tokenizer_folder)
        tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
            single="<|start|> $A <|end|>", special_tokens=[("<|start|>", 1), ("<|end|>", 2)]
        )
        tokenizer.enable_padding(length=100)
        tokenizer.enable_truncation(max_length=2)
        folder = tiny_tokenizer.write(tmp_path / "pairs")
        tokenizer.save(str(folder / "tokenizer.json"))

        x = encode(self.TEXTS, folder, length=6, task="classify").x

        assert x.shape == (2, 6)
        assert x[:, 0].tolist() == [1, 1]
        assert x[1, -1] == 2
        with pytest.raises(ConfigError, match="leaves no room beside the special tokens"):
            encode(self.TEXTS, folder, length=2, task="classify")

    def test_texts_without_labels_are_refused(self, tiny_tokenizer_folder):
        """With the key that names them."""
        with pytest.raises(ConfigError, match="needs labels to classify texts; name the column: label"):
            encode(Texts(records=("film",)), tiny_tokenizer_folder, length=8, task="classify")


class TestFolder:
    TEXTS = Texts(records=((ASK, TELL),))

    def test_a_length_beyond_the_model_is_refused(self, tmp_path):
        """Positions would not exist."""
        folder = tiny_tokenizer.write(tmp_path / "short", longest=16)

        with pytest.raises(ConfigError, match="length=17 reads at most 16 tokens"):
            encode(self.TEXTS, folder, length=17, task="continue")

    def test_the_end_serves_as_padding_where_none_is_named(self, tmp_path):
        """As for many decoders."""
        folder = tiny_tokenizer.write(tmp_path / "bare")
        config = json.loads((folder / "tokenizer_config.json").read_text())
        (folder / "tokenizer_config.json").write_text(json.dumps({**config, "pad_token": None}))

        assert encode(self.TEXTS, folder, length=64, task="continue").padding == 2

    @pytest.mark.parametrize("form", ["file", "named"])
    def test_a_template_is_found_in_its_other_places(self, tmp_path, form):
        """A file of its own, or one of several by name."""
        expected = encode(self.TEXTS, tiny_tokenizer.write(tmp_path / "a"), length=64, task="continue")
        folder = tiny_tokenizer.write(tmp_path / "b", template=None)
        if form == "file":
            (folder / "chat_template.jinja").write_text(tiny_tokenizer.TEMPLATE)
        else:
            named = {"chat_template": [{"name": "default", "template": tiny_tokenizer.TEMPLATE}]}
            config = json.loads((folder / "tokenizer_config.json").read_text())
            (folder / "tokenizer_config.json").write_text(json.dumps({**config, **named}))

        assert np.array_equal(encode(self.TEXTS, folder, length=64, task="continue").y, expected.y)

    @pytest.mark.parametrize(
        ("template", "message"),
        [
            (None, "has no chat template"),
            ("{% for", "its chat template says"),
            ("{{ raise_exception('no system role') }}", "its chat template says: no system role"),
            ("{{ messages.__class__.__mro__ }}", "its chat template says: access to attribute '__class__'"),
            ("{{ messages | length }}", "its words cannot be told apart"),
            ("{{ strftime_now('%d') }}", "'strftime_now' is undefined"),
        ],
    )
    def test_a_template_that_does_not_serve_is_one_clear_line(self, tmp_path, template, message):
        """Broken, refusing, unsafe, not telling whose words are whose, or other on another day."""
        folder = tiny_tokenizer.write(tmp_path / "odd", template=template)

        with pytest.raises(ConfigError, match=message) as caught:
            encode(self.TEXTS, folder, length=64, task="continue")

        assert "\n" not in str(caught.value)

    def test_marks_of_other_programs_render_as_their_body(self, tmp_path):
        """`{% generation %}` changes nothing."""
        marked = tiny_tokenizer.TEMPLATE.replace("{{ '<|start|>' + m", "{% generation %}{{ '<|start|>' + m", 1).replace(
            "'\n' }}{% endfor", "'\n' }}{% endgeneration %}{% endfor"
        )
        plain = encode(self.TEXTS, tiny_tokenizer.write(tmp_path / "a"), length=64, task="continue")

        other = encode(self.TEXTS, tiny_tokenizer.write(tmp_path / "b", template=marked), length=64, task="continue")

        assert "{% generation %}" in marked
        assert "{% endgeneration %}" in marked
        assert np.array_equal(plain.x, other.x)

    @pytest.mark.parametrize("gone", ["tokenizer.json", "config.json"])
    def test_an_incomplete_folder_is_one_clear_line(self, tmp_path, gone):
        """It names the file."""
        folder = tiny_tokenizer.write(tmp_path / "part")
        (folder / gone).unlink()

        with pytest.raises(ConfigError, match=f"base part: lacks .*{gone}"):
            encode(self.TEXTS, folder, length=8, task="continue")

    @pytest.mark.parametrize("library", ["tokenizers", "jinja2"])
    def test_a_missing_library_names_the_extra(self, tiny_tokenizer_folder, monkeypatch, library):
        """What to install."""
        monkeypatch.setitem(__import__("sys").modules, library, None)

        with pytest.raises(ConfigError, match=r"pip install 'sordino\[lm\]'"):
            encode(self.TEXTS, tiny_tokenizer_folder, length=8, task="continue")


class TestRealBases:
    def test_smollm_learns_the_answers_of_its_own_template(self):
        """Its default system prompt comes first; each answer counts with its end-of-turn token."""
        folder = base("smollm2-135m")

        examples = encode(Texts(records=((ASK, TELL, MORE, LAST),)), folder, length=128, task="continue")

        counted = text_of(folder, examples.y[examples.y != IGNORE])
        assert counted == "The heart is a muscle.<|im_end|>\n  To be, émigré 🎉\n<|im_end|>"
        assert text_of(folder, examples.x[0]).startswith("<|im_start|>system\nYou are a helpful AI assistant")
        assert examples.vocabulary == 49152

    def test_smollm_reads_digits_one_by_one(self):
        """As it was trained to."""
        folder = base("smollm2-135m")

        tokens = encode(Texts(records=("call 4071",)), folder, length=5, task="continue").y[0]

        assert [text_of(folder, [token]) for token in tokens] == [" ", "4", "0", "7", "1"]

    def test_minilm_reads_between_its_two_marks(self):
        """[CLS] and [SEP], whatever is cut; its own file pads to 128."""
        folder = base("minilm")
        texts = Texts(records=("good", "a dull, long and silly film"), y=np.array([1, 0]), classes=2)

        examples = encode(texts, folder, length=5, task="classify")

        assert examples.x.tolist() == [[101, 2204, 102, 0, 0], [101, 1037, 10634, 1010, 102]]
        assert (examples.padding, examples.vocabulary) == (0, 30522)
