"""Base models: found by name, path or hub, and converted out of packages once."""

from __future__ import annotations

import json
import zipfile
from dataclasses import replace

import numpy as np
import pytest

from sordino.core.errors import ConfigError
from sordino.data import _gguf, pretrained
from sordino.data.fetch import sha256
from sordino.data.pretrained import bases, described, located, prepare


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache."""
    monkeypatch.setenv("SORDINO_CACHE", str(tmp_path))
    return tmp_path


def plant(cache, monkeypatch, name, files):
    """A small package in the cache, in the place of a known base's."""
    wheel = cache / "small-1.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for member, content in files.items():
            archive.writestr(member, content)
    archive = replace(bases[name].archive, file=wheel.name, sha256=sha256(wheel), members=tuple(files))
    monkeypatch.setitem(bases, name, replace(bases[name], archive=archive))


def safetensors(**tensors):
    """A file by its published form: length of the header, header, bytes."""
    header, body = {"__metadata__": {"format": "pt"}}, b""
    for name, array in tensors.items():
        kind = {"float32": "F32", "int64": "I64"}[str(array.dtype)]
        span = [len(body), len(body) + array.nbytes]
        header[name], body = {"dtype": kind, "shape": array.shape, "data_offsets": span}, body + array.tobytes()
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + body


class TestLocated:
    @pytest.mark.parametrize("name", sorted(bases))
    def test_a_known_name_says_how_to_get_it(self, cache, name):
        """Nothing is fetched behind one's back."""
        with pytest.raises(ConfigError, match=f"run `sordino data fetch {name}`"):
            located(name)

    def test_a_path_is_taken_as_it_is(self, tiny_tokenizer_folder, tmp_path):
        """If it holds a model."""
        assert located(str(tiny_tokenizer_folder)) == tiny_tokenizer_folder
        for path in (str(tmp_path), "./nowhere", "~/nowhere"):
            with pytest.raises(ConfigError, match=r"is no folder with a config\.json"):
                located(path)

    def test_the_hub_gives_weights_and_no_code(self, monkeypatch, tmp_path):
        """Of any other name: neither pickles nor Python."""
        hub = pytest.importorskip("huggingface_hub")
        asked = {}
        monkeypatch.setattr(hub, "snapshot_download", lambda name, **options: asked.update(options) or str(tmp_path))

        assert located("somebody/model") == tmp_path
        assert not {"*.bin", "*.pt", "*.py"} & set(asked["allow_patterns"])

    def test_a_hub_out_of_reach_is_one_clear_line(self, monkeypatch, tmp_path):
        """With the names that need no hub."""
        hub = pytest.importorskip("huggingface_hub")
        monkeypatch.setattr(hub.constants, "HF_HUB_OFFLINE", True)
        monkeypatch.setattr(hub.constants, "HF_HUB_CACHE", str(tmp_path))

        for name in ("nobody/has-this-model", "not a / name"):
            with pytest.raises(
                ConfigError, match=r"could not be had from the Hugging Face hub .*smollm2-135m"
            ) as caught:
                located(name)
            assert "\n" not in str(caught.value)


FILES = {
    "pkg/model/config.json": json.dumps({"model_type": "bert", "num_hidden_layers": 2, "vocab_size": 9}),
    "pkg/model/model.safetensors": safetensors(
        weight=np.zeros((3, 4), np.float32), position_ids=np.zeros((1, 5), np.int64)
    ),
}


class TestPrepare:
    def test_a_package_is_unpacked_once(self, cache, monkeypatch):
        """All files or none; the second call finds them."""
        plant(cache, monkeypatch, "minilm", FILES)
        told = []

        folder = prepare("minilm", told.append)

        assert sorted(file.name for file in folder.iterdir()) == ["config.json", "model.safetensors"]
        assert located("minilm") == folder == prepare("minilm", told.append)
        assert [line.split(": ")[1].split(",")[0] for line in told] == [
            "already in the cache",
            "unpacking and converting",
            f"0.0 MB in {folder}",
            "already in the cache",
        ]
        assert [file.name for file in folder.parent.iterdir()] == [folder.name]

    def test_a_failure_leaves_nothing(self, cache, monkeypatch):
        """A base is complete, or not there."""
        plant(cache, monkeypatch, "smollm2-135m", {"pkg/a.gguf": b"GGUF"})

        def fails(file, folder):
            (folder / "config.json").write_text("{}")
            raise ConfigError.about("base", "breaks half-way")

        monkeypatch.setattr(pretrained, "convert", fails)
        with pytest.raises(ConfigError, match="half-way"):
            prepare("smollm2-135m")

        assert list((cache / "models").iterdir()) == []
        with pytest.raises(ConfigError, match="run `sordino data fetch"):
            located("smollm2-135m")

    def test_an_unknown_name_is_offered_the_nearest(self):
        """As everywhere."""
        with pytest.raises(ConfigError, match="did you mean 'minilm'"):
            prepare("minlm")

    def test_a_description_counts_parameters(self, cache, monkeypatch):
        """From the header alone; positions are no parameters."""
        plant(cache, monkeypatch, "minilm", FILES)
        prepare("minilm")

        value = described("minilm")

        assert (value["parameters"], value["layers"], value["vocabulary"]) == (12, 2, 9)
        assert value["licence"] == "Apache-2.0"


def test_rows_of_a_rotation_are_put_back():
    """GGUF writes, per head, rows i and i + half next to each other; here is its writer, and ours undoes it."""
    published = np.arange(24, dtype=np.float32).reshape(12, 2)
    heads = 3
    written = published.reshape(heads, 2, 12 // heads // 2, 2).swapaxes(1, 2).reshape(12, 2)

    assert not np.array_equal(written, published)
    assert np.array_equal(_gguf._unpermuted(written, heads), published)


def write_gguf(path, *, pre="smollm"):
    """A Llama of one layer, by the gguf library's own writer."""
    gguf = pytest.importorskip("gguf")
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_block_count(1)
    writer.add_context_length(32)
    writer.add_embedding_length(8)
    writer.add_feed_forward_length(16)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_rope_freq_base(100000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(["<|endoftext|>", "<|im_end|>", "a", "b", "ab", "1", "2", "12"])
    writer.add_token_types([3, 3, 1, 1, 1, 1, 1, 1])
    writer.add_token_merges(["a b", "1 2"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(1)
    writer.add_chat_template("{{ messages[0]['content'] }}")
    random = np.random.default_rng(0)
    shapes = {
        "token_embd": (8, 8),
        "output_norm": (8,),
        "blk.0.attn_norm": (8,),
        "blk.0.attn_q": (8, 8),
        "blk.0.attn_k": (4, 8),
        "blk.0.attn_v": (4, 8),
        "blk.0.attn_output": (8, 8),
        "blk.0.ffn_norm": (8,),
        "blk.0.ffn_gate": (16, 8),
        "blk.0.ffn_up": (16, 8),
        "blk.0.ffn_down": (8, 16),
    }
    tensors = {f"{name}.weight": random.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    for name, value in tensors.items():
        writer.add_tensor(name, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return tensors


class TestConversion:
    @pytest.fixture
    def folder(self, tmp_path):
        pytest.importorskip("safetensors")
        pytest.importorskip("tokenizers")
        written = write_gguf(tmp_path / "tiny.gguf")
        folder = tmp_path / "converted"
        folder.mkdir()
        _gguf.convert(tmp_path / "tiny.gguf", folder)
        return folder, written

    def test_weights_are_those_of_the_file(self, folder):
        """Under transformers' names; queries and keys in its order; the output shares the embedding."""
        from safetensors.numpy import load_file

        folder, written = folder
        tensors = load_file(folder / "model.safetensors")

        assert len(tensors) == len(written)
        assert np.array_equal(tensors["model.embed_tokens.weight"], written["token_embd.weight"])
        assert np.array_equal(tensors["model.layers.0.mlp.down_proj.weight"], written["blk.0.ffn_down.weight"])
        keys = tensors["model.layers.0.self_attn.k_proj.weight"]
        assert np.array_equal(keys, _gguf._unpermuted(written["blk.0.attn_k.weight"], 2))
        assert json.loads((folder / "config.json").read_text())["tie_word_embeddings"] is True

    def test_transformers_loads_it_whole(self, folder):
        """No weight missing, none left over, the output tied."""
        transformers = pytest.importorskip("transformers")
        pytest.importorskip("torch")

        model, report = transformers.AutoModelForCausalLM.from_pretrained(folder[0], output_loading_info=True)

        assert not report["missing_keys"]
        assert not report["unexpected_keys"]
        assert model.lm_head.weight is model.model.embed_tokens.weight
        assert model.config.rms_norm_eps == 1e-5
        assert model.config.rope_parameters["rope_theta"] == 100000.0

    def test_digits_are_tokens_of_their_own(self, folder):
        """Even where a merge would join them; special tokens are whole."""
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(str(folder[0] / "tokenizer.json"))

        assert tokenizer.encode("ab12<|im_end|>").ids == [4, 5, 6, 1]
        assert json.loads((folder[0] / "tokenizer_config.json").read_text())["eos_token"] == tokenizer.id_to_token(1)

    def test_another_kind_of_file_is_refused(self, tmp_path):
        """Its tokenizer would be built wrongly."""
        write_gguf(tmp_path / "other.gguf", pre="llama-bpe")

        with pytest.raises(ConfigError, match="holds llama with the tokenizer llama-bpe"):
            _gguf.convert(tmp_path / "other.gguf", tmp_path)


@pytest.mark.slow
def test_the_real_smollm_speaks():
    """Its greedy answer is right, and English costs it about three nats a token."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    try:
        folder = located("smollm2-135m")
    except ConfigError as reason:
        pytest.skip(str(reason))
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)

    asked = tokenizer("The capital of France is", return_tensors="pt")
    answer = tokenizer.decode(model.generate(**asked, max_new_tokens=3, do_sample=False)[0])
    english = tokenizer(
        "Hospitals keep records of their patients. A doctor reads them before a visit, and writes down what was "
        "said, what was found, and what should be done next.",
        return_tensors="pt",
    ).input_ids
    with torch.no_grad():
        loss = float(model(english, labels=english).loss)

    assert answer.startswith("The capital of France is Paris")
    assert 1.5 < loss < 4.0
