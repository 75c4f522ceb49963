"""A Llama in one GGUF file to the folder that every library reads: config, tokenizer and float32 safetensors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sordino.core.errors import ConfigError
from sordino.data.chat import EXTRA

Tensor: TypeAlias = NDArray[np.float32]

NAMES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
BLOCK = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
CONTROL = 3
"""The token type of GGUF for special tokens."""


def convert(file: Path, folder: Path) -> None:
    """Write config.json, model.safetensors, tokenizer.json and tokenizer_config.json of a Llama.

    Args:
        file: The GGUF file, of the architecture `llama` with the byte-level tokenizer `smollm`.
        folder: Exists, and gets the files.

    Raises:
        ConfigError: gguf, safetensors or tokenizers is missing, or the file holds another kind of model.
    """
    try:
        import gguf
        from safetensors.numpy import save_file
    except ImportError:
        raise ConfigError.about("base", "reading GGUF needs gguf, safetensors and tokenizers", EXTRA) from None

    reader = gguf.GGUFReader(str(file))
    facts = {name: field.contents() for name, field in reader.fields.items()}
    kinds = facts.get("general.architecture"), facts.get("tokenizer.ggml.pre")
    if kinds != ("llama", "smollm"):
        raise ConfigError.about(
            "base", f"holds {kinds[0]} with the tokenizer {kinds[1]}", "get a Llama", file=file.name
        )
    heads = {"attn_q": facts["llama.attention.head_count"], "attn_k": facts["llama.attention.head_count_kv"]}
    tensors = {}
    for tensor in reader.tensors:
        values = gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        part = tensor.name.split(".")[-2]
        tensors[_name(tensor.name)] = _unpermuted(values, heads[part]) if part in heads else values
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    tied = "lm_head.weight" not in tensors
    _write(folder / "config.json", _config(facts, tied=tied))
    _write(folder / "tokenizer_config.json", _tokenizer_config(facts))
    _tokenizer(facts).save(str(folder / "tokenizer.json"))


def _name(name: str) -> str:
    """A tensor's name in transformers.

    >>> _name("blk.7.attn_q.weight"), _name("token_embd.weight")
    ('model.layers.7.self_attn.q_proj.weight', 'model.embed_tokens.weight')
    """
    first, *rest = name.removesuffix(".weight").split(".")
    if first != "blk":
        return f"{NAMES[first]}.weight"
    return f"model.layers.{rest[0]}.{BLOCK[rest[1]]}.weight"


def _unpermuted(values: Tensor, heads: int) -> Tensor:
    """Rows of a query or key projection in transformers' order: GGUF interleaves the halves that rotate together."""
    rows, columns = values.shape
    halves = values.reshape(heads, rows // heads // 2, 2, columns)
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(rows, columns))


def _config(facts: dict[str, Any], *, tied: bool) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": len(facts["tokenizer.ggml.tokens"]),
        "hidden_size": facts["llama.embedding_length"],
        "intermediate_size": facts["llama.feed_forward_length"],
        "num_hidden_layers": facts["llama.block_count"],
        "num_attention_heads": facts["llama.attention.head_count"],
        "num_key_value_heads": facts["llama.attention.head_count_kv"],
        "max_position_embeddings": facts["llama.context_length"],
        "rope_theta": facts["llama.rope.freq_base"],
        # float32 in the file; the published value has few digits.
        "rms_norm_eps": float(f"{facts['llama.attention.layer_norm_rms_epsilon']:.6g}"),
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": tied,
        "bos_token_id": facts["tokenizer.ggml.bos_token_id"],
        "eos_token_id": facts["tokenizer.ggml.eos_token_id"],
        "pad_token_id": facts["tokenizer.ggml.padding_token_id"],
        "torch_dtype": "float32",
    }


def _tokenizer_config(facts: dict[str, Any]) -> dict[str, Any]:
    texts = facts["tokenizer.ggml.tokens"]
    known = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
    return {
        # Reads tokenizer.json as it is; GPT2Tokenizer would build its own and join digits.
        "tokenizer_class": "PreTrainedTokenizerFast",
        **{name: texts[facts[f"tokenizer.ggml.{key}_token_id"]] for name, key in known.items()},
        "chat_template": facts["tokenizer.chat_template"],
        "model_max_length": facts["llama.context_length"],
        "clean_up_tokenization_spaces": False,
    }


def _tokenizer(facts: dict[str, Any]) -> Any:
    """Byte-level BPE that takes digits one by one."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    texts = facts["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ", 1)) for merge in facts["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE(vocab={text: i for i, text in enumerate(texts)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    kinds = facts["tokenizer.ggml.token_type"]
    special = [text for text, kind in zip(texts, kinds, strict=True) if kind == CONTROL]
    tokenizer.add_special_tokens([AddedToken(text, normalized=False, special=True) for text in special])
    return tokenizer


def _write(file: Path, value: dict[str, Any]) -> None:
    file.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
