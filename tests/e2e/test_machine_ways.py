"""Every way to train that runs over machines: the same model, bit by bit, as in one process, and the same claims."""

from __future__ import annotations

import json

import numpy as np
import pytest
from machines import NAMES, Killed, Machines, answers
from whole_runs import model, planned

import tiny_lm
import tiny_tokenizer
from sordino.experiment.remote.books import RemoteBooks
from sordino.experiment.run import run

SEEDED = "simulation.noise_seed=5"
TABLE = """
name = "ways"
rounds = 2
[data.table]
path = '{path}'
label = "ill"
client = "hospital"
user = "who"
features = ["a"]
ranges = {{ a = [0, 1] }}
classes = ["0", "1"]
public = true
[model.logistic]
[privacy]
noise_multiplier = 1.0
delta = 1e-5
silos_per_person = 1
[local]
lr = 0.5
[strategy.fedavg]
"""
CLIENTS = "privacy={{ unit='client', noise_at='{}', noise_multiplier=0.5, delta=1e-3 }}".format
FIXED, ADAPTIVE = "stages=[{ clip={ norm=0.5 } }]", "stages=[{ adaptive_clip={ norm=0.5 } }]"
OVERLAP = ("rounds=7", "sampling={ buffered={ size=2, per_client=6, concurrency=3, spread=0.5 } }")
GROUPS = ("data.table.group='tier'", "groups={ open={ epsilon=4.0 }, strict={ epsilon=2.0 } }")
TIERS = "privacy={ epsilon=4.0, delta=1e-5, silos_per_person=1 }"
WAYS = {
    "records, whole batches": ("local.clip=0.5", "local.steps=2"),
    "records, sampled batches": ("local.clip=0.5", "local.steps=2", "local.batch=0.5"),
    "persons": ("local.clip=0.5", "privacy.unit='user'"),
    "groups": (*GROUPS, TIERS, "local={ lr=0.5, clip=0.5, batch=0.4, individual='scale' }"),
    "zeroth order": ("local={ method='zeroth_order', lr=0.3, clip=0.5, steps=2, directions=2 }",),
    "clients at the silo": (CLIENTS("silo"), FIXED, "local={ lr=0.5, epochs=1, batch_size=7 }"),
    "clients at the coordinator": (CLIENTS("coordinator"), FIXED, "local={ lr=0.5, epochs=1, batch_size=7 }"),
    "canaries": ("local.clip=0.5", "local.steps=2", "audit={ canaries=30 }"),
    "mislabelled canaries": ("local.clip=0.5", "audit={ canaries=5, kind='mislabelled', silo='north' }"),
    "canaries who are persons": ("local.clip=0.5", "privacy.unit='user'", "audit={ canaries=10, seed=3 }"),
    "figures after rounds that overlap": (
        *("local.clip=0.5", "rounds=3", "evaluation.release={ epsilon=0.5 }", "audit={ canaries=10 }"),
        "sampling={ buffered = { size = 2, per_client = 3, concurrency = 2 } }",
    ),
    "figures of persons": ("local.clip=0.5", "privacy.unit='user'", "evaluation.release={ epsilon=0.5, loss=2.0 }"),
    "a clip that adapts": (CLIENTS("coordinator"), ADAPTIVE, "local={ lr=0.5, epochs=1 }"),
    "records, overlapping": ("local.clip=0.5", "local.steps=2", "local.batch=0.5", *OVERLAP),
    "clients at the silo, overlapping": (CLIENTS("silo"), FIXED, "local={ lr=0.5, epochs=1 }", *OVERLAP),
    "clients at the coordinator, overlapping": (CLIENTS("coordinator"), FIXED, "local={ lr=0.5, epochs=1 }", *OVERLAP),
}
WORDS = """
name = "words"
rounds = 2
[data.text]
path = '{path}'
messages = "messages"
client = "hospital"
public = true
[model.causal_lm]
base = '{base}'
length = 24
adapter = {{ {adapter} = {{ rank = 1 }} }}
[privacy]
noise_multiplier = 0.5
delta = 1e-5
silos_per_person = 1
[local]
lr = 0.05
clip = 1.0
[strategy.fedavg]
"""


def enrolled(file, data, *overrides):
    """Silos that may take part in this plan, with much to spend and nothing spent."""
    plan, _ = planned(file, *overrides)
    groups = {name.partition("/")[2] for name in (account.name for account in plan.accounts)} - {""}
    privacy = plan.experiment.privacy
    return Machines.enrolled(
        file,
        NAMES,
        data=data,
        unit=privacy.unit,
        adjacency=plan.adjacency,
        accounts=tuple(sorted(groups)),
        test=True,
        epsilon=1e4,
        delta=0.1,
        noise_at=str(privacy.noise_at),
    )


def same_as_in_process(file, data, *overrides):
    """Both ways end with the same bytes, claims and figures, and with ledgers that hold."""
    machines = enrolled(file, data, *overrides)
    plan, population = planned(file, *overrides)
    alone = run(plan, population, "", machines.root / "alone")
    with machines.members() as members:
        apart = machines.run(answers(members), *overrides)
    assert machines.told == []
    assert np.array_equal(model(alone), model(apart))
    assert np.isfinite(model(alone)).all()
    assert apart.summary["epsilon"] == alone.summary["epsilon"]
    for what in ("metrics", "released_metrics", "canaries"):
        assert apart.summary[what] == alone.summary[what]
    machines.hold(plan.run, {})


@pytest.fixture
def table(tmp_path, unwatched):
    """The experiment's file, and where the silos find the rows."""
    del unwatched
    rows = "".join(
        f"{i % 7 / 7:.3f},{i % 2},{NAMES[i % 3]},{NAMES[i % 3]}{i % 12},{'strict' if i % 5 else 'open'}\n"
        for i in range(60)
    )
    (tmp_path / "rows.csv").write_text("a,ill,hospital,who,tier\n" + rows)
    file = tmp_path / "ways.toml"
    file.write_text(TABLE.format(path=tmp_path / "rows.csv"))
    return file, {"path": str(tmp_path / "rows.csv")}


@pytest.mark.parametrize("way", WAYS)
def test_the_same_model_over_machines(table, way):
    same_as_in_process(*table, *WAYS[way], SEEDED)


def test_coins_are_kept_before_any_silo_trains(table):
    """
    Whoever could choose them after an update could pass any audit.
    """
    way, found = (*WAYS["canaries"], SEEDED), []
    machines = enrolled(*table, *way)

    def watching(answer):
        def answering(letter):
            kept = list(machines.root.glob("runs/*/canaries.json"))
            found.append((letter.action, [json.loads(file.read_text())["digest"] for file in kept]))
            return answer(letter)

        return answering

    with machines.members() as members:
        result = machines.run({name: watching(answer) for name, answer in answers(members).items()}, *way)
    at_training = [digests for action, digests in found if action == "train"]
    assert len(at_training) == 6
    assert at_training == [[result.summary["canaries"]["digest"]]] * 6


def test_noise_of_the_coordinator_is_lost_with_it_and_never_drawn_again(table, monkeypatch):
    """
    Killed after its draw and before the commit: the round is spent everywhere, released nowhere, and the rest runs.
    """
    way = (*WAYS["clients at the coordinator"], SEEDED, "rounds=3")
    machines = enrolled(*table, *way)
    plan, _ = planned(table[0], *way)

    def commit(self, *_):
        if self._round.txid.endswith("/1"):
            raise Killed
        sound(self, *_)

    sound = RemoteBooks.commit
    with machines.members() as members:
        with monkeypatch.context() as patch:
            patch.setattr(RemoteBooks, "commit", commit)
            with pytest.raises(Killed):
                machines.run(answers(members), *way)
        result = machines.run(answers(members), *way)
    states = machines.states(plan.run)
    assert states.pop("") == ["0 committed", "1 forfeited", "2 committed"]
    assert set(map(tuple, states.values())) == {("0 committed", "1 committed", "2 committed")}
    assert result.summary["rounds_lost"] == 1
    machines.hold(plan.run, {})


@pytest.mark.parametrize("adapter", ["lora", "alternating"])
def test_the_same_adapter_over_machines(tmp_path, unwatched, adapter):
    """
    A tiny language model; where A and B take turns, each round sends and charges its own part.
    """
    del unwatched
    pytest.importorskip("peft")
    lines = [
        {
            "hospital": NAMES[i % 3],
            "messages": [
                {"role": "user", "content": f"{'fine' if i % 2 else 'dull'} film {i % 7}"},
                {"role": "assistant", "content": "rest" if i % 2 else "see a doctor"},
            ],
        }
        for i in range(30)
    ]
    data = tmp_path / "rows.jsonl"
    data.write_text("".join(json.dumps(line) + "\n" for line in lines))
    base = tiny_lm.tiny(tiny_tokenizer.write(tmp_path / "base", vocabulary=300), "llama", vocab_size=300)
    file = tmp_path / "words.toml"
    file.write_text(WORDS.format(path=data, base=base, adapter=adapter))
    same_as_in_process(file, {"path": str(data)}, SEEDED)
