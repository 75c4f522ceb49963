"""What language models give away: secrets by their number of copies, and members by what was trained.

    sordino data fetch sentiment4
    python benchmarks/language_leakage.py --json

Exposure: numbers of four digits (13.3 bits) planted 1, 8 and 32 times among the sentences of a small n-gram network,
without privacy and with private steps. Record-level privacy protects one copy; k copies get k times the epsilon.
Membership: a tiny Llama that has read reviews is trained on tweets, with LoRA of rank 4 and 8 and with all its
parameters, by a run's own rounds; every tweet is in or out by a coin, and two more models calibrate, to one of which it
is new.
"""

from __future__ import annotations

import argparse
import datetime as dt
import itertools
import json
import platform
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM
from transformers.utils import logging as transformers_logging

from sordino.audit.attacks import attacks
from sordino.audit.findings import Finding
from sordino.audit.promise import Promise
from sordino.core.seeds import stream
from sordino.data.datasets import datasets
from sordino.data.texts import Texts
from sordino.data.tokenise import encode
from sordino.experiment.audits import language
from sordino.experiment.audits._audited import Audited
from sordino.experiment.build import Built, build
from sordino.experiment.config import parse
from sordino.experiment.folder import RunFolder
from sordino.experiment.plan import Plan, make_plan
from sordino.experiment.population import load
from sordino.local.layout import Layout
from sordino.local.losses import cross_entropy

warnings.filterwarnings("ignore")

NOISE = {"no noise": None, "noise 10": 10.0, "noise 50": 50.0}
"""Noise multiplier of 150 steps over all records."""

TRAINED = {"lora r 4": (4, 2.0), "lora r 8": (8, 2.0), "full": (1, 0.2)}
"""Rank and step size of each way of training; `full` trains every parameter but those of its adapter."""

LENGTH = 64

EXPERIMENT = """
name = "leakage"
seed = 1
rounds = {rounds}
[data.text]
path = '{data}'
text = "text"
client = "site"
public = true
[model.causal_lm]
base = '{base}'
length = {length}
adapter = {{ lora = {{ rank = {rank}, targets = "all-linear" }} }}
[privacy]
{privacy}
[local]
lr = {lr}
{local}
[strategy.fedavg]
"""


def main(arguments: list[str] | None = None) -> None:
    """Print both tables, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2], help="of the exposure part")
    parser.add_argument("--noise", nargs="*", choices=list(NOISE), default=list(NOISE))
    parser.add_argument("--trained", nargs="*", choices=list(TRAINED), default=list(TRAINED))
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--texts", type=int, default=250)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    transformers_logging.disable_progress_bar()
    sys.path.append(str(Path(__file__).parents[1] / "tests"))  # tiny models that the tests use too
    rows = []
    studies = exposures(options.noise, options.seeds), memberships(options.trained, options.rounds, options.texts)
    for row in itertools.chain(*studies):
        print(shown(row), file=sys.stderr if options.json else sys.stdout, flush=True)
        rows.append(row)
    if options.json:
        print(json.dumps({"header": header(), "rows": rows}, indent=2, ensure_ascii=False))


def header() -> dict[str, str]:
    """When, and with what."""
    today = dt.datetime.now(dt.UTC).date().isoformat()
    return {"date": today, "python": platform.python_version(), "torch": torch.__version__, "numpy": np.__version__}


def exposures(noise: list[str], seeds: list[int]) -> Iterator[dict[str, Any]]:
    """Bits by copies, for every noise and seed."""
    from worlds.language import World

    attack = attacks.build("exposure", {"copies": [1, 8, 32], "secrets": 3})
    for name in noise:
        for seed in seeds:
            world = World(noise_multiplier=NOISE[name], steps=150, sentences=400, context=10, seed=seed)
            yield row("exposure", name, seed, *timed(attack, world), world.promise)


def memberships(trained: list[str], rounds: int, texts: int) -> Iterator[dict[str, Any]]:
    """AUC and true positive rates, for every way of training, without privacy and with."""
    attack = attacks.build("sequence_membership", {})
    if not trained:
        return
    with tempfile.TemporaryDirectory() as folder:
        data, network = tweets(Path(folder) / "tweets.jsonl", texts), base(Path(folder) / "base")
        for private in (False, True):
            for name in trained:
                audited = prepared(name, network, data, rounds, private=private)
                found = timed(attack, language.subject(audited))
                label = f"{name}, {'private' if private else 'no privacy'}"
                yield row("membership", label, 0, *found, audited.promise)


def tweets(file: Path, texts: int) -> Path:
    """So many tweets at one site, and twenty at another."""
    said = sentences("tweets", texts + 20)
    lines = [{"text": text, "site": "large" if i < texts else "small"} for i, text in enumerate(said)]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return file


def sentences(domain: str, count: int) -> list[str]:
    """The first texts of a domain of sentiment4."""
    source = datasets.build("sentiment4", {"domains": [domain]}, "data").load()
    return [str(text) for text in source.records[:count]]


def base(folder: Path, epochs: int = 6) -> Path:
    """Two Llama layers of width 64 that have read 1,500 reviews."""
    import tiny_lm
    import tiny_tokenizer

    sizes = {"hidden_size": 64, "intermediate_size": 128, "max_position_embeddings": LENGTH, "vocab_size": 400}
    tiny_lm.tiny(tiny_tokenizer.write(folder, vocabulary=400, longest=LENGTH), "llama", **sizes)
    network = AutoModelForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        for parameter in network.parameters():  # the tests' weights are wide, to have something to attend to
            if parameter.dim() > 1:
                parameter.mul_(0.1)
    read = encode(Texts(tuple(sentences("amazon", 1500))), folder, length=LENGTH, task="continue")
    x, y = torch.from_numpy(read.x), torch.from_numpy(read.y)
    optimiser, rng = torch.optim.AdamW(network.parameters(), lr=3e-3), stream(0, "pretraining")
    for _ in range(epochs):
        for rows in np.array_split(rng.permutation(len(x)), len(x) // 32):
            optimiser.zero_grad()
            cross_entropy(network(x[rows]).logits, y[rows]).mean().backward()
            optimiser.step()
    network.save_pretrained(folder)
    return folder


def prepared(name: str, folder: Path, data: Path, rounds: int, *, private: bool) -> Audited:
    """An experiment as an audit opens it, before anything has run."""
    rank, lr = TRAINED[name]
    text = EXPERIMENT.format(
        rounds=rounds,
        data=data,
        base=folder,
        length=LENGTH,
        rank=rank,
        lr=lr,
        privacy="epsilon = 8.0\nsilos_per_person = 1" if private else "non_private = true",
        local="clip = 1.0" if private else "epochs = 1\nbatch_size = 16\nmomentum = 0.9",
    )
    experiment = parse(text)
    population = load(experiment)
    plan = make_plan(experiment, population, check_learning=False)
    built, client = build(plan, population, probe=False), population.names.index("large")
    built = whole(built) if name == "full" else built
    return Audited(
        folder=RunFolder(data.parent),
        plan=plan,
        population=population,
        built=built,
        promise=promised(plan, client),
        model=built.start,
        client=client,
        seed=0,
    )


def whole(built: Built) -> Built:
    """Every parameter is trained, but not the adapter, which stays at zero."""
    module = built.setup.module
    for name, parameter in module.named_parameters():
        parameter.requires_grad_(".lora_" not in name)
    layout = Layout.of(module)
    setup = replace(built.setup, layout=layout, description=None, stack=None, twin=None)
    return replace(built, setup=setup, start=layout.flatten(module))


def promised(plan: Plan, client: int) -> Promise | None:
    """What a silo's plan is charged for."""
    account = next((account for account in plan.accounts if account.client == client), None)
    if account is None:
        return None
    return Promise.declared(account.events, plan.delta, adjacency=plan.adjacency, by="the plan")


def timed(attack: Any, subject: Any) -> tuple[Finding, float]:
    """A finding and its CPU seconds."""
    begun = time.process_time()
    return attack.run(subject, lambda _: None), time.process_time() - begun


def row(
    study: str, setting: str, seed: int, finding: Finding, seconds: float, promise: Promise | None
) -> dict[str, Any]:
    """One line of the tables."""
    figures = {
        name: [round(part, 3) if part is not None else None for part in (figure.value, figure.low, figure.high)]
        for name, figure in finding.figures.items()
    }
    return {
        "study": study,
        "setting": setting,
        "seed": seed,
        "epsilon": None if promise is None else round(promise.epsilon, 2),
        "verdict": finding.verdict.value,
        "figures": figures,
        "cpu_s": round(seconds, 1),
    }


def shown(line: dict[str, Any]) -> str:
    """A row as text."""
    names = [name for name in line["figures"] if name.startswith(("exposure", "auc"))]
    values = "  ".join(f"{name.replace('_', ' ')} {line['figures'][name][0]:.2f}" for name in names)
    terms = "" if line["epsilon"] is None else f"ε {line['epsilon']:.1f}"
    return f"{line['study']:<11}{line['setting']:<21}{terms:<7}seed {line['seed']}  {values}  ({line['cpu_s']} CPU s)"


if __name__ == "__main__":
    main()
