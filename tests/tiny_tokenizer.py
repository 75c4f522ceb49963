"""A base model's folder without weights: a tokenizer trained on a few sentences, a chat template, and a config."""

from __future__ import annotations

import json
from pathlib import Path

SENTENCES = [
    "The heart is a muscle that moves blood.",
    "Rest, drink water, and see a doctor when it gets worse.",
    "What a fine film! What a dull, long and silly film.",
    "To be, or not to be: that is the question.",
    "system user assistant You are kind. 0 1 2 3 4 5 6 7 8 9",
]
TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|start|>' + message['role'] + '\n' + message['content'] + '<|end|>' + '\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start|>assistant\n' }}{% endif %}"
)
SPECIALS = ("<|pad|>", "<|start|>", "<|end|>")


def write(folder: Path, *, vocabulary: int = 400, template: str | None = TEMPLATE, longest: int = 512) -> Path:
    """A folder with tokenizer.json, tokenizer_config.json and a config.json to which an architecture may be added."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary, special_tokens=list(SPECIALS), initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(SENTENCES, trainer)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    names = {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "<|pad|>", "eos_token": "<|end|>"}
    chat = {} if template is None else {"chat_template": template}
    (folder / "tokenizer_config.json").write_text(json.dumps({**names, **chat}))
    (folder / "config.json").write_text(json.dumps({"vocab_size": vocabulary, "max_position_embeddings": longest}))
    return folder
