"""What single adapters promise, and the checks on what leaves with them."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import subprocess
import sys

import numpy as np
import pytest
import torch

pytest.importorskip("peft")

from safetensors.torch import load_file, save_file

from sordino.core.errors import ConfigError, PrivacyError, VerificationError
from sordino.core.types import Group
from sordino.local.adapters._base import _stored, described
from sordino.local.adapters._inspect import inspected
from sordino.local.adapters.stacked import stack
from sordino.local.adapters.verify import check_exported, check_moved, check_reloads
from sordino.local.layout import Layout
from sordino.local.losses import cross_entropy
from sordino.local.models import InputSpec, models
from sordino.local.probe import probe
from tiny_lm import LENGTH, PADDING, spec_of, texts, tiny

FAMILIES = ("bert", "llama", "gpt2", "distilbert", "roberta", "qwen2", "electra", "gpt_neox")
MODELS = {"classify": "text_classifier", "continue": "causal_lm"}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Tiny bases of several architectures, written once."""
    folder = tmp_path_factory.mktemp("bases")
    return {family: tiny(folder / family, family) for family in FAMILIES}


def built(folders, adapter, family="llama", task="continue", seed=1, **keys):
    table = {"base": "tiny", "length": LENGTH, "adapter": adapter, **keys}
    return models.build(MODELS[task], table).build(spec_of(folders[family], task), seed)


def vector_of(module, seed=5):
    size = Layout.of(module).size
    return (torch.randn(size, generator=torch.Generator().manual_seed(seed)) * 0.3).numpy()


def with_values(module, seed=5):
    Layout.of(module).restore(module, vector_of(module, seed))
    return module


def change(module, path):
    """What the adapter adds to one linear map, as a matrix."""
    layer = module.network.get_submodule(path)
    A, B = module.adapter.factors(layer)
    return module.adapter.scale * (B @ A).detach()


class TestEachAdapter:
    def test_ffa_trains_b_and_shares_a(self, folders):
        """A is frozen, the same for everyone who has the seed, and spread as Kaiming's rule says."""
        module = built(folders, {"ffa": {"rank": 4}})
        frozen = {name: p for name, p in module.named_parameters() if "lora_A" in name}

        assert len(frozen) == 4
        assert not any(p.requires_grad for p in frozen.values())
        assert all(p.abs().max() <= 0.25 for p in frozen.values())
        assert all(p.std() > 0.1 for p in frozen.values())
        assert all(not p.any() for name, p in module.named_parameters() if "lora_B" in name), (
            "training starts at the pretrained model"
        )

    def test_alternating_trains_one_factor_a_round(self, folders):
        """B in even rounds, A in odd ones, the head always; together they are everything."""
        module = built(folders, {"alternating": {"rank": 4}}, family="bert", task="classify")
        first, second = (set(module.active(round=r, client=0, clients=3)) for r in (0, 1))
        everything = {group.name for group in Layout.of(module).groups}

        assert first | second == everything
        assert first & second == {"network.classifier.weight", "network.classifier.bias"}
        assert all("lora_A" not in name for name in first)
        assert set(module.active(round=2, client=1, clients=3)) == first

    @pytest.mark.parametrize(("rank", "scale"), [(4, 8.0), (16, 4.0)])
    def test_rslora_scales_with_the_root_of_the_rank(self, folders, rank, scale):
        """s = alpha / √rank, and the network uses it."""
        module = with_values(built(folders, {"rslora": {"rank": rank, "alpha": 16.0}}))
        path = "model.layers.0.self_attn.q_proj"
        layer = module.network.get_submodule(path)
        x = torch.randn(2, 16, generator=torch.Generator().manual_seed(1))

        assert module.adapter.scale == scale
        torch.testing.assert_close(layer(x) - layer.get_base_layer()(x), x @ change(module, path).T)

    def test_layers_and_targets_choose(self, folders):
        """Only the named maps of the named layers are adapted."""
        module = built(folders, {"ffa": {"rank": 2, "targets": ["o_proj", "mlp.up_proj"], "layers": [1]}})
        assert [group.name.removeprefix("network.model.layers.") for group in Layout.of(module).groups] == [
            "1.self_attn.o_proj.lora_B.default.weight",
            "1.mlp.up_proj.lora_B.default.weight",
        ]

    @pytest.mark.parametrize("family", ["llama", "gpt2"])
    @pytest.mark.parametrize("bases", ["orthogonal", "svd"])
    def test_fed_sb_has_orthonormal_public_bases(self, folders, family, bases):
        """A has orthonormal rows, B orthonormal columns; `svd` takes them from the pretrained weight and no seed."""
        first, second = (built(folders, {"fed_sb": {"rank": 4, "bases": bases}}, family, seed=s) for s in (1, 2))
        path = first.adapter.targeted(first.base)[0].path
        pairs = []
        for module in (first, second):
            layer = module.network.get_submodule(path)
            pairs.append((layer.lora_A["default"].weight, layer.lora_B["default"].basis.weight))
        (A, B), (other, _) = pairs

        torch.testing.assert_close(A @ A.T, torch.eye(4), atol=1e-5, rtol=0)
        torch.testing.assert_close(B.T @ B, torch.eye(4), atol=1e-5, rtol=0)
        assert torch.equal(A, other) == (bases == "svd")
        if bases == "svd":
            weight = layer.get_base_layer().weight
            weight = weight.T if family == "gpt2" else weight
            core = B.T @ weight @ A.T
            expected = torch.linalg.svdvals(weight)[:4]
            torch.testing.assert_close(core, torch.diag(expected), atol=1e-4, rtol=1e-4)

    def test_fed_sb_refuses_a_core_wider_than_the_map(self, folders):
        """Keys of the tiny Llama have eight outputs."""
        with pytest.raises(ConfigError, match="exceeds the width"):
            built(folders, {"fed_sb": {"rank": 9}})

    def test_stacked_is_the_sum_over_silos(self, folders):
        """The joint change is Σ s·B_i·A_i, and each silo trains its own block."""
        module = with_values(built(folders, {"stacked": {"rank": 2, "silos": 3}}))
        path = "model.layers.0.self_attn.v_proj"
        layer = module.network.get_submodule(path)
        A = layer.lora_A["default"].weight.chunk(3)
        products = [block.weight @ part for block, part in zip(layer.lora_B["default"], A, strict=True)]
        x = torch.randn(5, 16, generator=torch.Generator().manual_seed(1))

        torch.testing.assert_close(layer(x) - layer.get_base_layer()(x), x @ (2.0 * sum(products)).T)
        names = [set(module.active(round=0, client=i, clients=3)) for i in range(3)]
        assert not set.intersection(*names)
        assert set.union(*names) == {group.name for group in Layout.of(module).groups}
        with pytest.raises(ConfigError, match="one block per silo"):
            module.active(round=0, client=0, clients=4)

    def test_noise_of_a_silo_stays_linear(self, folders):
        """Noise in silo 0's block and in silo 1's add up; in a plain LoRA's two factors they multiply as well."""

        def interaction(adapter, first, second):
            """What two changes do together beyond what each does alone."""
            module = built(folders, adapter)
            layout, base = Layout.of(module), vector_of(built(folders, adapter))
            path = "model.layers.0.self_attn.q_proj"

            def at(*names):
                moved = base.copy()
                for group in layout.groups:
                    if any(name in group.name for name in names):
                        moved[group.start : group.stop] += vector_of(module, 9)[group.start : group.stop]
                layout.restore(module, moved)
                return change(module, path)

            return float((at(first, second) - at(first) - at(second) + at()).abs().max())

        assert interaction({"stacked": {"rank": 2, "silos": 2}}, "default.0.", "default.1.") < 1e-5
        assert interaction({"lora": {"rank": 2}}, "lora_A", "lora_B") > 1e-2

    def test_a_prefix_changes_what_follows(self, folders):
        """Values of the virtual tokens reach the logits of every text, and of none of them through padding."""
        module = built(folders, {"prefix": {"tokens": 3}}, family="bert", task="classify")
        x, _ = texts()
        before = module(x)
        after = with_values(module)(x)
        assert ((before - after).abs().amax(dim=1) > 1e-4).all()


def test_parts_of_different_ranks_stack_exactly():
    """B·A of the stack is the weighted sum of the products; whole numbers, so to the last bit."""
    rng = np.random.default_rng(1)
    parts = [(rng.integers(-9, 9, (r, 5)), rng.integers(-9, 9, (7, r)), float(w)) for r, w in ((1, 2), (4, 1), (2, 3))]

    A, B = stack(parts)

    assert A.shape == (7, 5)
    assert np.array_equal(B @ A, sum(w * (b @ a) for a, b, w in parts))
    with pytest.raises(ConfigError, match="same map"):
        stack([*parts, (np.ones((2, 4)), np.ones((7, 2)), 1.0)])
    with pytest.raises(ConfigError, match="same map"):
        stack([])


class TestTheNetwork:
    @pytest.mark.parametrize(("family", "task"), [("bert", "classify"), ("llama", "classify"), ("llama", "continue")])
    @pytest.mark.parametrize("adapter", [{"ffa": {"rank": 4}}, {"prefix": {"tokens": 3}}])
    def test_padding_does_not_matter(self, folders, family, task, adapter):
        """A text has the same logits alone, among longer ones, and in a longer row; a lone row without padding too."""
        module = with_values(built(folders, adapter, family, task)).eval()
        x, _ = texts(task)
        together = module(x)

        longer = torch.cat([x, torch.full((4, 6), PADDING)], dim=1)
        torch.testing.assert_close(module(longer)[:, :LENGTH] if task == "continue" else module(longer), together)
        for row, length in enumerate((10, 7, 3, 1)):
            alone, expected = module(x[row : row + 1, :length])[0], together[row]
            torch.testing.assert_close(alone, expected[:length] if task == "continue" else expected)

    def test_logits_cover_all_positions(self, folders):
        """A batch of short texts is cut for the network, and its logits are as long as the rows again."""
        module = built(folders, {"ffa": {"rank": 2}})
        x, _ = texts("continue", lengths=(3, 2))
        logits = module(x)
        assert logits.shape == (2, LENGTH, 64)
        assert not logits[:, 3:].any()
        assert logits[:, :2].all()

    def test_a_row_of_padding_alone_has_finite_logits(self, folders):
        """Stacked cohorts fill up with such rows."""
        for family, task in (("bert", "classify"), ("llama", "classify"), ("llama", "continue")):
            assert torch.isfinite(built(folders, {"ffa": {"rank": 2}}, family, task)(torch.zeros(2, 5).long())).all()

    @pytest.mark.parametrize("checkpointing", ["reentrant", "non_reentrant"])
    @pytest.mark.parametrize(("family", "task"), [("bert", "classify"), ("llama", "continue")])
    def test_checkpointing_changes_no_gradient(self, folders, checkpointing, family, task):
        """Layers computed twice give the gradients of layers kept."""
        x, _ = texts(task)
        gradients = []
        for how in ("none", checkpointing):
            module = with_values(built(folders, {"lora": {"rank": 2}}, family, task, checkpointing=how))
            module(x)[torch.arange(4), 0].square().sum().backward()
            gradients.append([p.grad for p in module.parameters() if p.requires_grad])
        assert all(g is not None for g in gradients[1])
        for kept, twice in zip(*gradients, strict=True):
            torch.testing.assert_close(kept, twice)

    def test_a_prefix_and_checkpointing_are_refused(self, folders):
        """Checkpointed layers drop the keys and values they are given."""
        with pytest.raises(ConfigError, match="checkpointing"):
            built(folders, {"prefix": {"tokens": 2}}, checkpointing="non_reentrant")

    def test_dropout_is_that_of_hidden_values(self, folders):
        """BERT drops as told and its attention never; Llama has nothing to drop, which is said."""
        module = built(folders, {"ffa": {"rank": 2}}, "bert", "classify", dropout=0.5)
        x, _ = texts()
        assert not torch.equal(module(x), module(x))
        assert module.network.config.attention_probs_dropout_prob == 0
        still = built(folders, {"ffa": {"rank": 2}}, "bert", "classify")
        assert torch.equal(still(x), still(x))
        with pytest.raises(ConfigError, match="no effect"):
            built(folders, {"ffa": {"rank": 2}}, dropout=0.5)

    def test_quantised_bases_need_their_extra(self, folders, monkeypatch):
        """The message names it."""
        monkeypatch.setitem(sys.modules, "bitsandbytes", None)
        with pytest.raises(ConfigError, match=r"sordino\[quantised\]"):
            built(folders, {"ffa": {"rank": 2}}, quantise="8bit")

    @pytest.mark.parametrize("bits", ["8bit", "4bit"])
    def test_quantised_bases_keep_examples_apart(self, folders, tmp_path, bits):
        """One example with large values changes nobody's gradient; the adapter reloads on the quantised base."""
        pytest.importorskip("bitsandbytes")
        base = tiny(tmp_path, hidden_size=64, intermediate_size=64, num_attention_heads=2)
        table = {"base": "tiny", "length": LENGTH, "adapter": {"ffa": {"rank": 2}}, "quantise": bits}
        module = with_values(models.build("causal_lm", table).build(spec_of(base, "continue"), 1))
        (saved := tmp_path / "adapter").mkdir()
        module.save(saved)
        assert check_reloads(module, saved, spec_of(base, "continue")).by == "peft"

        x, y = texts("continue")
        x[0, :10] = 5
        with torch.no_grad():  # one token whose activations stand out, past the usual threshold of 6
            module.network.model.embed_tokens.weight[5] = torch.eye(64)[0]
        probe(module, cross_entropy, x, y)
        probe(module.eval(), cross_entropy, x, y)  # on a CPU only this uses the arithmetic that a GPU trains with

    @pytest.mark.parametrize(
        ("name", "keys"),
        [("lora", {}), ("rslora", {}), ("ffa", {}), ("fed_sb", {"bases": "svd"}), ("stacked", {"silos": 2})],
    )
    def test_merged_weights_are_the_adapter(self, folders, tmp_path, name, keys):
        """PEFT's merge of the saved adapter into the base gives the module's logits."""
        import peft

        from sordino.local.models._language import plain

        module = with_values(built(folders, {name: {"rank": 4, "targets": "all-linear", **keys}}))
        module.save(tmp_path)
        x, _ = texts("continue", lengths=(10, 10))
        spec = spec_of(folders["llama"], "continue")
        with pytest.warns(FutureWarning):
            merged = peft.PeftModel.from_pretrained(plain(module.base, spec), tmp_path).merge_and_unload()
        torch.testing.assert_close(merged(input_ids=x).logits, module(x), rtol=1e-4, atol=1e-4)

    def test_a_head_that_the_files_have_is_kept(self, folders, tmp_path):
        """A base that was fine-tuned for as many classes starts from its head; for another number from a new one."""
        import transformers

        with torch.random.fork_rng(devices=[]):
            config = transformers.AutoConfig.from_pretrained(folders["bert"], num_labels=3)
            network = transformers.AutoModelForSequenceClassification.from_config(config)
        network.save_pretrained(tmp_path)
        model = models.build("text_classifier", {"base": "x", "length": LENGTH, "adapter": {"head": {}}})
        kept, new = (model.build(spec_of(tmp_path, classes=n), 1) for n in (3, 4))

        assert torch.equal(kept.network.classifier.weight, network.classifier.weight)
        assert new.network.classifier.weight.shape == (4, 16)
        assert abs(new.network.classifier.weight.std().item() - 0.02) < 0.01


class TestFiles:
    @pytest.mark.parametrize(
        ("family", "task"),
        [(family, "classify") for family in FAMILIES] + [(x, "continue") for x in ("llama", "gpt2", "gpt_neox")],
    )
    def test_other_architectures_are_read_as_well(self, folders, family, task):
        """Shapes off the files are those of the module, with every linear map adapted."""
        keys = {"rank": 2, "targets": "all-linear"}
        model = models.build(MODELS[task], {"base": "x", "length": LENGTH, "adapter": {"lora": keys}})
        spec = spec_of(folders[family], task)
        module = model.build(spec, 1)
        assert model.shapes(spec) == tuple(
            (name, tuple(p.shape)) for name, p in module.named_parameters() if p.requires_grad
        )

    @pytest.mark.parametrize("family", ["bert", "llama", "gpt2", "distilbert", "roberta", "qwen2"])
    @pytest.mark.parametrize("task", ["classify", "continue"])
    def test_known_architectures_are_as_transformers_builds_them(self, folders, family, task):
        """The table that spares `sordino plan` torch says what the network itself says."""
        if task == "continue" and family in ("bert", "distilbert", "roberta"):
            return
        known = described(str(folders[family]), "x", task, 3)
        looked_at = inspected(str(folders[family]), "x", task, 3, _stored(folders[family]))
        assert dataclasses.replace(looked_at, encoder=known.encoder) == known

    def test_a_missing_pooler_is_part_of_the_head(self, folders, tmp_path):
        """Else it would be random, frozen, and in no file."""
        tensors = load_file(folders["bert"] / "model.safetensors")
        kept = {name: tensor for name, tensor in tensors.items() if "pooler" not in name}
        assert len(kept) < len(tensors)
        save_file(kept, tmp_path / "model.safetensors", {"format": "pt"})
        (tmp_path / "config.json").write_bytes((folders["bert"] / "config.json").read_bytes())
        model = models.build("text_classifier", {"base": "x", "length": LENGTH, "adapter": {"ffa": {"rank": 2}}})
        module = with_values(model.build(spec_of(tmp_path), 1))
        (saved := tmp_path / "adapter").mkdir()
        module.save(saved)

        assert "network.bert.pooler.dense.weight" in {group.name for group in Layout.of(module).groups}
        assert check_reloads(module, saved, spec_of(tmp_path)).by == "peft"

    def test_shards_are_read(self, folders, tmp_path):
        """Large models are stored in several files with an index."""
        tensors = load_file(folders["llama"] / "model.safetensors")
        half = len(tensors) // 2
        index = {}
        for i, names in enumerate((sorted(tensors)[:half], sorted(tensors)[half:])):
            save_file({name: tensors[name] for name in names}, tmp_path / f"part{i}.safetensors", {"format": "pt"})
            index |= dict.fromkeys(names, f"part{i}.safetensors")
        (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}), encoding="utf-8")
        (tmp_path / "config.json").write_bytes((folders["llama"] / "config.json").read_bytes())
        model = models.build("causal_lm", {"base": "x", "adapter": {"ffa": {}}})
        assert model.shapes(spec_of(tmp_path, "continue")) == model.shapes(spec_of(folders["llama"], "continue"))

    @pytest.mark.parametrize(
        ("file", "content", "words"),
        [
            ("config.json", b"", "cannot be read"),
            ("model.safetensors", b"short", "safetensors"),
            ("model.safetensors", (2).to_bytes(8, "little") + b"{}", "lacks a weight matrix"),
        ],
    )
    def test_broken_files_are_named(self, folders, tmp_path, file, content, words):
        """Before torch is imported, with the file."""
        for name in ("config.json", "model.safetensors"):
            (tmp_path / name).write_bytes((folders["llama"] / name).read_bytes())
        (tmp_path / file).write_bytes(content)
        model = models.build("causal_lm", {"base": "x", "adapter": {"ffa": {}}})
        with pytest.raises(ConfigError, match=words):
            model.shapes(spec_of(tmp_path, "continue"))

    def test_other_records_are_refused(self):
        """A table has no folder of a base."""
        model = models.build("causal_lm", {"base": "x", "adapter": {"ffa": {}}})
        with pytest.raises(ConfigError, match="text dataset"):
            model.shapes(InputSpec((29,), 2))

    def test_descriptions_do_not_import_torch(self, folders):
        """`sordino plan` knows the size of an adapter without torch, transformers and PEFT."""
        code = (
            "import sys\nfrom sordino.local.models import models, InputSpec, parameter_count\n"
            "import sordino.local.adapters.verify\n"
            "model = models.build('causal_lm', {'base': 'x', 'adapter': {'ffa': {'rank': 4}}})\n"
            f"assert parameter_count(model, InputSpec((9,), 64, 64, 0, {str(folders['llama'])!r})) == 192\n"
            "sys.exit(any(name in sys.modules for name in ('torch', 'transformers', 'peft', 'safetensors')))"
        )
        assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


class TestWhatLeaves:
    def test_a_tensor_that_stood_still_is_named(self):
        """So is one that is not finite, and one that the vector does not hold."""
        groups = [Group("a", 0, 2), Group("b", 2, 4), Group("c", 4, 5)]
        before, after = np.zeros(5, np.float32), np.array([1, 0, 0, 0, np.nan], np.float32)
        check_moved(["a"], before, after, groups)
        with pytest.raises(PrivacyError, match=r"\['b'\] did not move"):
            check_moved(["a", "b"], before, after, groups)
        with pytest.raises(PrivacyError, match=r"\['c'\] are not finite"):
            check_moved(["a", "c"], before, after, groups)
        with pytest.raises(PrivacyError, match="not in the vector"):
            check_moved(["d"], before, after, groups)

    @pytest.mark.parametrize(
        ("adapter", "origins"),
        [
            ({"lora": {"rank": 2}}, {"lora_A": "released", "lora_B": "released", "classifier": "released"}),
            ({"ffa": {"rank": 2}}, {"lora_A": "public", "lora_B": "released", "classifier": "released"}),
            ({"ffa": {"rank": 2, "head": False}}, {"lora_A": "public", "lora_B": "released", "classifier": "public"}),
            ({"fed_sb": {"rank": 2}}, {"lora_A": "public", "lora_B": "derived", "classifier": "released"}),
            ({"stacked": {"rank": 2, "silos": 2}}, {"lora_A": "public", "lora_B": "derived", "classifier": "released"}),
            ({"head": {}}, {"classifier": "released"}),
            ({"prefix": {"tokens": 2}}, {"prompt_embeddings": "released", "classifier": "released"}),
        ],
    )
    def test_the_saved_file_is_what_was_released(self, folders, tmp_path, adapter, origins):
        """Every tensor is told by name and hash, with where it comes from; the file reloads to the same logits."""
        module = with_values(built(folders, adapter, "bert", "classify"))
        module.save(tmp_path)

        exported = check_exported(built(folders, adapter, "bert", "classify"), vector_of(module), tmp_path)
        reloaded = check_reloads(module, tmp_path, spec_of(folders["bert"]))

        for item in exported:
            (kind,) = (kind for kind in origins if kind in item.name)
            assert item.origin == origins[kind]
        stored = load_file(tmp_path / "adapter_model.safetensors")
        assert {e.name: e.sha256 for e in exported} == {
            name: hashlib.sha256(tensor.numpy().tobytes()).hexdigest() for name, tensor in stored.items()
        }
        assert reloaded.by == ("sordino" if "prefix" in adapter else "peft")
        assert module.training

    @pytest.mark.parametrize("defect", ["extra", "missing", "changed", "public"])
    def test_a_file_that_holds_something_else_is_refused(self, folders, tmp_path, defect):
        """A tensor too many, one too few, a private value, or a fixed factor that was trained after all."""
        module = with_values(built(folders, {"ffa": {"rank": 2}}))
        vector = vector_of(module)
        tensors = module.tensors()
        module.save(tmp_path)
        name = next(name for name in tensors if ("lora_A" if defect == "public" else "lora_B") in name)
        if defect == "extra":
            tensors["base_model.model.lm_head.weight"] = torch.ones(2)
        elif defect == "missing":
            del tensors[name]
        else:
            tensors[name] = tensors[name] + 1e-3
        save_file(tensors, tmp_path / "adapter_model.safetensors")

        with pytest.raises(PrivacyError, match="lm_head" if defect == "extra" else name):
            check_exported(built(folders, {"ffa": {"rank": 2}}), vector, tmp_path)

    def test_another_adapter_than_the_module_is_refused(self, folders, tmp_path):
        """What is saved must be the module's parameters, not an earlier state of them."""
        module = with_values(built(folders, {"lora": {"rank": 2}}))
        module.save(tmp_path)
        assert check_reloads(module, tmp_path, spec_of(folders["llama"], "continue")).by == "peft"
        with_values(module, seed=6)
        with pytest.raises(VerificationError, match="other logits"):
            check_reloads(module, tmp_path, spec_of(folders["llama"], "continue"))
