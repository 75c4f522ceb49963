"""A real language model, end to end: SmolLM2 tuned on Shakespeare's dialogue, and its adapter in plain PEFT."""

from __future__ import annotations

import json
import math
import warnings
from pathlib import Path

import pytest
from whole_runs import sordino

from sordino.core.errors import ConfigError
from sordino.data import datasets
from sordino.data.fetch import cached
from sordino.data.pretrained import located

torch = pytest.importorskip("torch")
pytest.importorskip("peft")

BASE = "smollm2-135m"
EXPERIMENT = """
name = "smollm2"
seed = 1
[data.dialogue]
silos = 2
[model.causal_lm]
base = "smollm2-135m"
length = 24
adapter = { ffa = { rank = 1, layers = [28, 29] } }
[privacy]
epsilon = 8.0
delta = 1e-5
silos_per_person = 1
[local]
lr = 0.1
clip = 1.0
steps = 2
batch = 0.05
[strategy.fedavg]
[evaluation]
test_fraction = 0.02
"""


def base() -> Path:
    """The base's folder, if it and the dialogue were fetched."""
    if cached(datasets.get("dialogue").fetch) is None:
        pytest.skip("needs `sordino data fetch dialogue`")
    try:
        return located(BASE)
    except ConfigError as missing:
        pytest.skip(str(missing))


@pytest.mark.slow
def test_a_real_model_is_tuned_and_speaks(tmp_path, capsys):
    """
    One round at epsilon 8: the claim holds, the loss is finite, and plain PEFT loads the adapter and writes text.
    """
    import transformers
    from peft import PeftModel

    folder = base()
    file = tmp_path / "smollm2.toml"
    file.write_text(EXPERIMENT, encoding="utf-8")

    code, out, error = sordino(capsys, "run", file, "--runs", tmp_path / "runs", "--json")

    assert code == 0, error
    summary = json.loads(out)
    assert 0 < summary["epsilon"] <= 8
    assert math.isfinite(summary["metrics"]["loss"])
    assert summary["metrics"]["loss"] < math.log(49152) / 2, "far better than chance: the base is the pretrained one"
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # of the libraries, about each other
        plain = transformers.AutoModelForCausalLM.from_pretrained(folder)
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        asked = tokenizer("HAMLET: Whither wilt thou lead me?", return_tensors="pt")
        before = plain(**asked).logits
        tuned = PeftModel.from_pretrained(plain, summary["adapter"]["folder"]).eval()
        assert not torch.equal(tuned(**asked).logits, before)
        told = tuned.generate(**asked, max_new_tokens=8, do_sample=False)
    text = tokenizer.decode(told[0, asked["input_ids"].shape[1] :], skip_special_tokens=True)
    assert text.strip()
