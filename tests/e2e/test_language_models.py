"""Language models in whole runs: every adapter trains, is charged as planned, and leaves as a file that PEFT loads."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file
from whole_runs import model, one_line, planned, ran, sordino

import tiny_lm
import tiny_tokenizer
from sordino.core.errors import PrivacyError, SordinoError
from sordino.experiment import build as building
from sordino.experiment.books import LedgerBooks
from sordino.experiment.folder import RunFolder
from sordino.experiment.run import run
from sordino.experiment.settings import record_at_silo
from sordino.experiment.settings.parts import Part
from sordino.ledger import verify
from sordino.privacy.noise import SeededNoise

torch = pytest.importorskip("torch")
pytest.importorskip("peft")

EXPERIMENT = """
name = "words"
seed = 1
rounds = 2
[data.text]
path = '{data}'
{columns}
client = "site"
public = true
[model.{model}]
base = '{base}'
length = {length}
adapter = {adapter}
[privacy]
noise_multiplier = 0.5
silos_per_person = 1
[local]
lr = 0.05
clip = 1.0
[strategy.fedavg]
"""
TASKS = {
    "causal_lm": ("llama", 'messages = "messages"'),
    "text_classifier": ("bert", 'text = "text"\nlabel = "mood"\nclasses = ["bad", "good"]'),
}
ADAPTERS = {
    "lora": "{ lora = { rank = 1 } }",
    "rslora": "{ rslora = { rank = 1 } }",
    "ffa": "{ ffa = { rank = 1 } }",
    "alternating": "{ alternating = { rank = 1 } }",
    "stacked": "{ stacked = { rank = 1, silos = 3 } }",
    "fed_sb": "{ fed_sb = { rank = 2 } }",
    "prefix": "{ prefix = { tokens = 1 } }",
    "head": "{ head = {} }",
}
EVERY = [(task, name) for task in TASKS for name in ADAPTERS if (task, name) != ("causal_lm", "head")]
SEEDED = "simulation.noise_seed=1"


@pytest.fixture(scope="session")
def bases(tmp_path_factory) -> dict[str, Path]:
    """A decoder and an encoder of two layers, each with a tokenizer: complete bases."""
    found = {}
    for task, (family, _) in TASKS.items():
        folder = tiny_tokenizer.write(tmp_path_factory.mktemp("bases") / family, vocabulary=300)
        found[task] = tiny_lm.tiny(folder, family, vocab_size=300)
    return found


@pytest.fixture(scope="session")
def rows(tmp_path_factory) -> Path:
    """Sixty texts and conversations, of three sites, four persons each, some under a stricter tier."""
    file = tmp_path_factory.mktemp("rows") / "rows.jsonl"
    lines = [
        {
            "text": f"{'fine' if i % 2 else 'dull'} film {i % 7}",
            "messages": [
                {"role": "user", "content": f"{'fine' if i % 2 else 'dull'} film {i % 7}"},
                {"role": "assistant", "content": "rest" if i % 2 else "see a doctor"},
            ],
            "mood": "good" if i % 2 else "bad",
            "site": f"s{i % 3}",
            "person": f"s{i % 3}-p{i // 3 % 4}",
            "tier": "strict" if i % 5 == 0 else "open",
        }
        for i in range(60)
    ]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return file


@pytest.fixture
def written(tmp_path, bases, rows):
    """Writes an experiment file for a task and an adapter."""

    def write(task: str = "causal_lm", adapter: str = "ffa") -> Path:
        file = tmp_path / f"{task}-{adapter}.toml"
        length = 12 if task == "text_classifier" else 24
        file.write_text(
            EXPERIMENT.format(
                data=rows, columns=TASKS[task][1], model=task, base=bases[task], length=length,
                adapter=ADAPTERS[adapter],
            )
        )  # fmt: skip
        return file

    return write


def loaded_by_peft(base: Path, folder: Path, task: str):
    """The plain base with the saved adapter on it, as anybody would load it."""
    import transformers
    from peft import PeftModel

    kind = "AutoModelForCausalLM" if task == "causal_lm" else "AutoModelForSequenceClassification"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the libraries, about each other
        plain = getattr(transformers, kind).from_pretrained(base)
        before = {name: value.clone() for name, value in plain.named_parameters()}
        return PeftModel.from_pretrained(plain, str(folder)).eval(), before


@pytest.mark.parametrize(("task", "adapter"), EVERY)
def test_every_adapter_runs_and_leaves_as_planned(written, bases, capsys, task, adapter):
    """
    From the command line: what is claimed is what was planned, metrics fit the task, and PEFT loads what was saved.
    """
    file = written(task, adapter)
    plan, _ = planned(file)

    code, out, error = sordino(capsys, "run", file, "--runs", file.parent / "runs", "--json")

    assert code == 0, error
    summary = json.loads(out)
    assert summary["epsilon"] == plan.epsilon
    assert {silo["name"]: silo["epsilon"] for silo in summary["silos"]} == {a.name: a.epsilon for a in plan.accounts}
    assert ("loss" in summary["metrics"]) == (task == "causal_lm")
    assert 0 <= summary["metrics"]["accuracy"] <= 1
    folder = Path(summary["run_folder"])
    assert verify(folder / "ledger.db").ok
    assert Path(summary["adapter"]["folder"]) == folder / "adapter"
    saved = load_file(folder / "adapter" / "adapter_model.safetensors")
    assert {each["name"] for each in summary["adapter"]["tensors"]} == set(saved)
    assert sum(value.size for value in load_file(folder / "model.safetensors").values()) == plan.parameters
    if (task, adapter) == ("text_classifier", "prefix"):
        assert summary["adapter"]["loads_with"] == "sordino"
        return
    assert summary["adapter"]["loads_with"] == "peft"
    network, _ = loaded_by_peft(bases[task], folder / "adapter", task)
    found = {name.replace(".default", "").replace(".modules_to_save", ""): v for name, v in network.named_parameters()}
    for name, value in saved.items():
        place = "prompt_encoder.embedding.weight" if name == "prompt_embeddings" else name
        assert np.array_equal(found[place].detach().numpy(), value), name


def test_planning_imports_no_torch(written):
    """
    Neither task, with any adapter, needs torch, transformers or PEFT to be priced.
    """
    files = [str(written(task, adapter)) for task, adapter in EVERY]
    script = (
        "import sys\n"
        "from sordino.cli import main\n"
        "for file in sys.argv[1:]:\n"
        "    try:\n"
        "        main(['plan', file, '--json'])\n"
        "    except SystemExit as end:\n"
        "        assert not end.code, file\n"
        "    loaded = {name.split('.')[0] for name in sys.modules}\n"
        "    assert not loaded & {'torch', 'transformers', 'peft', 'opacus', 'safetensors'}, file\n"
    )

    ended = subprocess.run([sys.executable, "-c", script, *files], capture_output=True, text=True, check=False)

    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count('"signal_to_noise"') == len(EVERY)


@dataclasses.dataclass
class Watched:
    """A run from the inside: the model before, after each round, committed bytes, and the sizes of all noise."""

    models: list[np.ndarray]
    bytes: list[int]
    drawn: list[int]
    places: dict[str, slice]

    def moved(self, number: int) -> set[str]:
        """Names of the tensors that are not the same after a round."""
        before, after = self.models[number : number + 2]
        return {name for name, place in self.places.items() if not np.array_equal(before[place], after[place])}

    def size(self, names: set[str]) -> int:
        return sum(self.places[name].stop - self.places[name].start for name in names)


@pytest.fixture
def watch(monkeypatch):
    """Runs an experiment file and keeps what can be seen of it."""

    def watched(file: Path, *overrides: str) -> Watched:
        plan, population = planned(file, SEEDED, *overrides)
        built = building.build(plan, population, probe=False)
        groups = {group.name: slice(group.start, group.stop) for group in built.setup.layout.groups}
        seen = Watched([built.start], [], [], groups)
        save, commit = RunFolder.save, LedgerBooks.commit

        class Recording(SeededNoise):
            def normal(self, permit, std, size):
                seen.drawn.append(size)
                return super().normal(permit, std, size)

        def saving(self, state):
            seen.models.append(state.server.model)
            save(self, state)

        def committing(self, reservation, artefact):
            seen.bytes.append(len(artefact))
            commit(self, reservation, artefact)

        with monkeypatch.context() as patch:
            patch.setattr(building, "source_of", lambda experiment: Recording(1))
            patch.setattr(RunFolder, "save", saving)
            patch.setattr(LedgerBooks, "commit", committing)
            run(plan, population, "", file.parent / "runs")
        return seen

    return watched


SETTINGS = {
    "silo": (3, ()),
    "sum": (
        1,
        (
            "privacy={ noise_at = 'sum', noise_multiplier = 0.5, silos_per_person = 1 }",
            "simulation={ secure_sum = true, noise_seed = 1 }",
        ),
    ),
    "coordinator": (
        1,
        (
            "privacy={ unit = 'client', noise_at = 'coordinator', noise_multiplier = 0.2 }",
            "local={ lr = 0.05 }",
            "stages=[{ clip = { norm = 0.5 } }]",
        ),
    ),
    "clients": (
        3,
        (
            "privacy={ unit = 'client', noise_at = 'silo', noise_multiplier = 0.2 }",
            "local={ lr = 0.05 }",
            "stages=[{ clip = { norm = 0.5 } }]",
        ),
    ),
}
STRATEGIES = {
    "fedavg": "strategy={ fedavg = {} }",
    "momentum": "strategy={ momentum = { beta = 0.9 } }",
    "adaptive": "strategy={ adaptive = { kind = 'adam' } }",
}
PAIRS = [("silo", "fedavg"), ("silo", "adaptive"), *((setting, "momentum") for setting in SETTINGS)]


def rests(seen: Watched) -> None:
    """The claim: B in even rounds, A in odd ones, the head always; nothing else moves."""
    for number in range(len(seen.models) - 1):
        resting = ".lora_A." if number % 2 == 0 else ".lora_B."
        assert seen.moved(number) == {name for name in seen.places if resting not in name}


@pytest.mark.parametrize(("setting", "strategy"), PAIRS)
def test_factors_take_turns(written, watch, setting, strategy):
    """
    Whatever the server remembers and wherever noise is added, which is for the active factor only.
    """
    draws, terms = SETTINGS[setting]
    seen = watch(written("text_classifier", "alternating"), "rounds=3", STRATEGIES[strategy], *terms)

    rests(seen)
    active = [seen.size(seen.moved(number)) for number in range(3)]
    assert max(active) < seen.size(set(seen.places))
    assert seen.bytes == [4 * size for size in active]
    assert seen.drawn == [size for size in active for _ in range(draws)]


def test_a_memory_that_moves_what_rests_is_found(written, watch, monkeypatch):
    """
    Negative control: a server step that is taken whole moves the resting factor by its momentum.
    """
    monkeypatch.setattr(Part, "stepped", lambda self, before, after: after)
    seen = watch(written("text_classifier", "alternating"), "rounds=3", STRATEGIES["momentum"])

    with pytest.raises(AssertionError):
        rests(seen)


def test_a_silo_moves_its_own_block_only(written, watch):
    """
    One silo a round: its block and the head move, and its noise is no longer than these.
    """
    seen = watch(written("text_classifier", "stacked"), "rounds=4", "sampling={ round_robin = { size = 1 } }")

    for number in range(4):
        moved = seen.moved(number)
        assert moved == {n for n in seen.places if ".lora_B." not in n or f".lora_B.default.{number % 3}." in n}
        assert seen.drawn[number] == seen.size(moved)
    assert len(seen.drawn) == 4


BLOCKLESS = {
    **{name: terms for name, (_, terms) in SETTINGS.items() if name != "silo"},
    "losses": ("local={ method = 'zeroth_order', clip = 1.0, lr = 0.1 }",),
    "nobody": ("privacy={ non_private = true }", "local={ lr = 0.1 }"),
    "compared": ("compare={ epsilon = [30.0] }",),
}


@pytest.mark.parametrize("terms", BLOCKLESS.values(), ids=BLOCKLESS)
def test_blocks_need_silos_that_release(written, capsys, terms):
    """
    Where silos do not release by themselves a block of one's own makes no sense; the plan says so in one line.
    """
    code, out, error = sordino(
        capsys, "plan", written("causal_lm", "stacked"), *(part for term in terms for part in ("--set", term))
    )

    assert (code, out) == (2, "")
    assert "block" in one_line(error)


class Stop(Exception):
    """A crash that can be caught."""


def stop(*_: object) -> None:
    raise Stop


@pytest.mark.parametrize("moment", ["committed", "published"])
def test_a_crash_between_rounds_changes_nothing(written, monkeypatch, moment):
    """
    Alternating factors: who is active next follows from the round, so the resumed run ends where the whole one does.
    """
    file = written("causal_lm", "alternating")
    terms = (SEEDED, "rounds=3", STRATEGIES["momentum"])
    whole = model(ran(file, *terms, runs=file.parent / "whole"))
    plan, population = planned(file, *terms)
    save = RunFolder.save
    with monkeypatch.context() as patch:
        if moment == "committed":
            patch.setattr(RunFolder, "save", lambda self, state: stop() if state.round == 2 else save(self, state))
        with pytest.raises(Stop):
            run(plan, population, "", file.parent / "again", progress=lambda seen: stop() if seen.round == 2 else None)

    result = run(plan, population, "", file.parent / "again")

    assert result.resumed_at == (1 if moment == "committed" else 2)
    assert np.array_equal(model(result), whole)


def test_a_round_that_was_lost_is_no_round_that_moved_nothing(written, monkeypatch):
    """
    The first round's noise is lost in a crash: the resumed run goes on with the second, which trains A.
    """
    file = written("causal_lm", "alternating")
    plan, population = planned(file, SEEDED)
    with monkeypatch.context() as patch:
        patch.setattr(LedgerBooks, "commit", stop)
        with pytest.raises(Stop):
            run(plan, population, "", file.parent / "runs")

    result = run(plan, population, "", file.parent / "runs")

    assert result.summary["rounds_lost"] == 1
    tensors = load_file(result.folder / "model.safetensors")
    assert not any(value.any() for name, value in tensors.items() if ".lora_B." in name)


PERSONS = ("data.text.user=person", "privacy.unit=user")
TIERS = (
    "data.text.group=tier",
    "privacy={ epsilon = 8.0, silos_per_person = 1 }",
    "groups={ open = { epsilon = 8.0 }, strict = { epsilon = 4.0 } }",
    "local.batch=0.4",
)
PEOPLE = {
    "persons": ("causal_lm", PERSONS, 3),
    "their records": (
        "causal_lm",
        (*PERSONS, "local.people=records", "local.records_per_person=2", "local.batch=0.5"),
        3,
    ),
    "groups that join less": ("causal_lm", (*TIERS, "local.individual=sample"), 6),
    "groups that are clipped harder": ("text_classifier", (*TIERS, "local.individual=scale"), 6),
}


@pytest.mark.parametrize(("task", "terms", "accounts"), PEOPLE.values(), ids=PEOPLE)
def test_persons_and_groups(written, task, terms, accounts):
    """
    Whom a column names is protected as planned, in texts as in tables.
    """
    file = written(task, "ffa")
    plan, population = planned(file, *terms)

    result = run(plan, population, "", file.parent / "runs")

    assert {claim.account: claim.epsilon for claim in result.claims} == {a.name: a.epsilon for a in plan.accounts}
    assert len(result.claims) == accounts
    assert verify(result.folder / "ledger.db").ok


@pytest.mark.parametrize(("task", "adapter"), [("causal_lm", "ffa"), ("text_classifier", "alternating")])
def test_losses_alone_train_an_adapter(written, watch, task, adapter):
    """
    Zeroth-order steps: 64 bytes each, whatever the model, and the adapter is there at the end.
    """
    file = written(task, adapter)
    seen = watch(file, "local={ method = 'zeroth_order', directions = 16, clip = 1.0, lr = 0.1, steps = 2 }")

    assert seen.bytes == [2 * 64, 2 * 64]
    assert not np.array_equal(seen.models[0], seen.models[-1])
    if adapter == "alternating":
        rests(seen)
    (folder,) = (file.parent / "runs").iterdir()
    assert json.loads((folder / "summary.json").read_text())["adapter"]["loads_with"] == "peft"


@pytest.mark.parametrize(("task", "adapter"), [("causal_lm", "lora"), ("text_classifier", "fed_sb")])
def test_memory_is_saved_without_another_result(written, monkeypatch, task, adapter):
    """
    Few records at a time, or layers computed twice: the same model up to rounding, under the same noise.
    """
    attention, passes = torch.nn.functional.scaled_dot_product_attention, []

    def counted(*arguments, **keys):
        passes.append(torch.is_grad_enabled())
        return attention(*arguments, **keys)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", counted)
    file = written(task, adapter)

    def trained(*overrides: str) -> tuple[np.ndarray, int]:
        passes.clear()
        plan, population = planned(file, SEEDED, "local.steps=2", *overrides)
        # Noise goes by the plan's digest, which names these terms.
        same = dataclasses.replace(plan, digest="0" * 64)
        result = run(same, population, "", file.parent / f"runs {overrides}")
        return model(result), sum(passes)

    vector, once = trained()
    few, _ = trained("local.micro_batch=3")
    assert np.allclose(few, vector, rtol=1e-5, atol=1e-6)
    for way in ("reentrant", "non_reentrant"):
        other, twice = trained(f"model.{task}.checkpointing={way}")
        assert np.allclose(other, vector, rtol=1e-5, atol=1e-6), way
        assert twice > once or way == "reentrant"


@pytest.mark.parametrize("task", TASKS)
def test_settings_side_by_side(written, capsys, task):
    """
    A comparison of public texts: each silo alone, all together, and by epsilon, judged by the task's figures.
    """
    terms = ("--set", "compare={ epsilon = [60.0], splits = 2 }", "--set", "evaluation.every=1", "--set", "rounds=1")
    file = written(task, "ffa")

    code, out, error = sordino(capsys, "run", file, "--runs", file.parent / "runs", "--json", *terms)

    assert code == 0, error
    rows = json.loads(out)["compare"]
    assert [row["setting"].split(",")[0] for row in rows] == ["s0 alone", "s1 alone", "s2 alone", *2 * ["together"]]
    assert all(("loss" in row) == (task == "causal_lm") and "accuracy" in row for row in rows)
    (log,) = (file.parent / "runs").glob("*/rounds.jsonl")
    assert json.loads(log.read_text().splitlines()[0])["metrics"]["accuracy"] >= 0


WRONG = {
    "a model of texts for other data": ("data={ heart = {} }", "reads texts"),
    "a base that is not there": ("model.causal_lm.base='./nowhere'", "no folder"),
    "a base with a long name": ("model.causal_lm.base='no such base'", "no such base"),
    "a column that is not there": ("data.text.messages=talk", "has no column 'talk'"),
    "two kinds of text": ("data.text.text=text", "one of"),
    "a column of persons that is not there": ("data.text.user=patient", "has no column 'patient'"),
    "texts longer than the model reads": ("model.causal_lm.length=49", "at most 48"),
    "no length": ("model.causal_lm.length=0", "length"),
    "an adapter without a guarantee": ("model.causal_lm.adapter={ fedsa = {} }", "fedsa"),
    "an unknown adapter": ("model.causal_lm.adapter={ lorra = {} }", "did you mean 'lora'"),
    "two adapters": ("model.causal_lm.adapter={ lora = {}, ffa = {} }", "exactly one"),
    "no adapter": ("model.causal_lm.adapter={}", "exactly one"),
    "a head where there is none": ("model.causal_lm.adapter={ head = {} }", "nothing to train"),
    "blocks for other silos": ("model.causal_lm.adapter={ stacked = { rank = 1, silos = 2 } }", "must be 3"),
    "a map that is not there": ("model.causal_lm.adapter={ lora = { targets = ['query'] } }", "no linear map"),
    "a layer that is not there": ("model.causal_lm.adapter={ lora = { layers = [7] } }", "0 to 1"),
    "recomputed prefixes": (
        "model={ causal_lm = { base = 'BASE', adapter = { prefix = {} }, checkpointing = 'reentrant' } }",
        "leave out checkpointing",
    ),
    "no labels for a classifier": (
        "model={ text_classifier = { base = 'BASE', length = 12, adapter = { ffa = {} } } }",
        "needs labels",
    ),
    "groups without a column": (
        "groups={ open = { epsilon = 1.0 } }",
        "name their column",
    ),
}


@pytest.mark.parametrize(("assignment", "expected"), WRONG.values(), ids=WRONG)
def test_a_wrong_value_is_one_line(written, bases, capsys, assignment, expected):
    """
    The line names what is wrong, before anything runs.
    """
    file = written("causal_lm", "ffa")
    assignment = assignment.replace("BASE", str(bases["causal_lm"]))

    code, out, error = sordino(capsys, "run", file, "--runs", file.parent / "runs", "--set", assignment)

    assert (code, out) == (2, "")
    assert expected in one_line(error)
    assert not (file.parent / "runs").exists()


def test_texts_need_a_model_of_texts(written, capsys):
    """
    The other way round.
    """
    code, out, error = sordino(capsys, "run", written(), "--set", "model={ logistic = {} }")

    assert (code, out) == (2, "")
    assert "does not read texts" in one_line(error)


def test_a_base_is_fetched_first(written, capsys, monkeypatch, tmp_path):
    """
    A known base that is not in the cache: the line says which command brings it.
    """
    monkeypatch.setenv("SORDINO_CACHE", str(tmp_path / "empty"))

    code, out, error = sordino(capsys, "plan", written(), "--set", "model.causal_lm.base=smollm2-135m")

    assert (code, out) == (2, "")
    assert "sordino data fetch smollm2-135m" in one_line(error)


def broken(monkeypatch, spoil) -> None:
    """Silos whose training is spoilt: `spoil(module, layout, change)` after each."""
    sound = record_at_silo.train_private

    def training(module, layout, *arguments, **terms):
        change = sound(module, layout, *arguments, **terms)
        spoil(module, layout, change)
        return change

    monkeypatch.setattr(record_at_silo, "train_private", training)


@pytest.mark.parametrize(("adapter", "letter"), [("lora", "A"), ("lora", "B"), ("alternating", "A"), ("ffa", "B")])
def test_a_tensor_that_no_noise_reached_is_found(written, monkeypatch, adapter, letter):
    """
    Broken twin: one tensor of the adapter is left out of the step, as by a stale copy. The run stops, and exports
    nothing; where factors take turns, in the round in which it would have moved first.
    """

    def spoil(module, layout, change):
        for group in layout.groups:
            if f"layers.1.self_attn.v_proj.lora_{letter}" in group.name:
                change[group.start : group.stop] = 0

    broken(monkeypatch, spoil)
    file = written("causal_lm", adapter)

    with pytest.raises(PrivacyError, match=rf"v_proj\.lora_{letter}.* did not move"):
        ran(file)
    (folder,) = (file.parent / "runs").iterdir()
    assert not (folder / "adapter").exists()


def test_a_frozen_tensor_that_was_trained_does_not_leave(written, monkeypatch, unwatched):
    """
    Broken twin: a trainer that also steps on a frozen factor, without noise. Nothing is exported.
    """

    def spoil(module, layout, change):
        with torch.no_grad():
            module.get_parameter("network.model.layers.0.self_attn.q_proj.lora_A.default.weight").add_(0.01)

    broken(monkeypatch, spoil)
    file = written("causal_lm", "ffa")

    with pytest.raises(PrivacyError, match=r"not what the released parameters make of it"):
        ran(file)
    (folder,) = (file.parent / "runs").iterdir()
    assert not [path for path in folder.iterdir() if path.is_dir()]


def test_a_tensor_too_many_does_not_leave(written, monkeypatch):
    """
    Broken twin: an adapter that saves a layer of the base as well.
    """
    from sordino.local.models._language import LanguageModel

    sound = LanguageModel.save

    def saving(self, folder):
        tensors = self.tensors

        def more():
            return tensors() | {"base_model.model.model.norm.weight": self.get_parameter("network.model.norm.weight")}

        monkeypatch.setattr(self, "tensors", more, raising=False)
        sound(self, folder)

    monkeypatch.setattr(LanguageModel, "save", saving)
    file = written("causal_lm", "ffa")

    with pytest.raises(SordinoError, match=r"norm\.weight"):
        ran(file)
    (folder,) = (file.parent / "runs").iterdir()
    assert not (folder / "adapter").exists()
