"""Silos whose files nobody else has: the plan is made of declared numbers, and whoever lies does not join."""

from __future__ import annotations

import json
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from machines import Machines, answers
from whole_runs import model, one_line, planned, sordino

from sordino.audit.findings import Verdict
from sordino.core.errors import ConfigError, PrivacyError, VerificationError
from sordino.core.types import Unit
from sordino.data.canaries import craft
from sordino.data.federation import pooled
from sordino.experiment import declared as declared_module
from sordino.experiment.audits.auditing import audit, choice
from sordino.experiment.audits.opening import open_run
from sordino.experiment.build import build
from sordino.experiment.config import read
from sordino.experiment.declared import census
from sordino.experiment.metrics import metrics
from sordino.experiment.plan import make_plan
from sordino.experiment.population import load
from sordino.experiment.run import run
from sordino.experiment.site.member import Member
from sordino.ledger.silo import open_silo

SEED = "simulation.noise_seed=5"
SILOS = ("east", "north", "south")
HEADER = "a,b,ill,hospital\n"
TOML = """
name = "apart"
seed = 3
rounds = 3
[data.table]
label = "ill"
client = "hospital"
features = ["a", "b"]
ranges = { a = [0, 1], b = [0, 1] }
classes = ["0", "1"]
[model.logistic]
[privacy]
epsilon = 6.0
delta = 1e-5
silos_per_person = 1
[local]
clip = 0.5
lr = 0.5
[strategy.fedavg]
"""


def rows_of(silo: str) -> str:
    """50, 60 or 70 records, none alike."""
    draw = np.random.default_rng(SILOS.index(silo))
    n = 50 + 10 * SILOS.index(silo)
    a, b, noise = draw.random((3, n))
    ill = (a + 0.3 * noise > 0.6).astype(int)
    return "".join(f"{x:.6f},{y:.6f},{z},{silo}\n" for x, y, z in zip(a, b, ill, strict=True))


@dataclass
class Apart(Machines):
    """Machines of which each has its own file, under its own path."""

    files: dict[str, Path] = field(default_factory=dict)

    @contextmanager
    def members(self):
        with ExitStack() as stack:
            yield {
                name: Member(stack.enter_context(open_silo(folder)), folder, data={"path": str(self.files[name])})
                for name, folder in ((name, self.at(name)) for name in self.silos)
            }


def declared(root: Path, counts: dict[str, int]) -> Path:
    file = root / "apart.toml"
    lines = "".join(f"[silos.{name}]\nrecords = {count}\n" for name, count in counts.items())
    file.write_text(TOML + lines, encoding="utf-8")
    return file


@pytest.fixture
def files(tmp_path):
    found = {}
    for silo in SILOS:
        found[silo] = tmp_path / f"machine of {silo}" / "patients.csv"
        found[silo].parent.mkdir()
        found[silo].write_text(HEADER + rows_of(silo), encoding="utf-8")
    return found


@pytest.fixture
def apart(tmp_path, files):
    experiment = read(declared(tmp_path, {}))
    counts = {silo: census(experiment, {"path": str(path)}, silo).records for silo, path in files.items()}
    machines = Apart.enrolled(declared(tmp_path, dict(reversed(counts.items()))), SILOS, test=True)
    machines.files = files
    return machines


@pytest.fixture
def whole(tmp_path):
    """The same rows in one file, as if all silos were in one process."""
    (tmp_path / "all.csv").write_text(HEADER + "".join(map(rows_of, SILOS)), encoding="utf-8")
    file = tmp_path / "whole.toml"
    file.write_text(TOML.replace("[data.table]", f"[data.table]\npath = '{tmp_path / 'all.csv'}'"), encoding="utf-8")
    return file


def test_a_run_of_files_apart_is_the_run_of_one_file(apart, whole):
    """
    Same model, bit by bit; same price. The coordinator had no record, so it has no figures; each site has its own.
    """
    (plan, _), (_, here) = planned(apart.file, SEED), planned(whole)
    assert plan.clients == here.names
    alone = run(plan, here, "", apart.root / "alone")
    with apart.members() as members:
        result = apart.run(answers(members), SEED)
    assert apart.told == []
    assert np.array_equal(model(result), model(alone))
    assert result.summary["epsilon"] == alone.summary["epsilon"]
    assert tuple(silo["units"] for silo in result.summary["silos"]) == here.units
    assert result.summary["metrics"] is None
    own = [json.loads((p / "metrics.json").read_text()) for p in apart.root.glob("silos/*/runs/*")]
    assert [figures["visibility"] for figures in own] == ["local"] * 3
    assert len({figures["accuracy"] for figures in own}) > 1  # of one silo each
    kept = [*apart.root.glob("silos/*/runs/*"), *apart.root.glob("silos/*/outbox")]
    assert [path.stat().st_mode & 0o077 for path in kept] == [0] * 6  # and for that silo's user alone


NOISE = "privacy={{ unit='{}', noise_multiplier=3.0, delta=1e-5, silos_per_person=1 }}".format
CARRIED = (
    *(SEED, NOISE("record"), "rounds=2"),
    *("audit={ canaries=40, silo='north' }", "evaluation.release={ epsilon=0.5, loss=2.0 }"),
)


def test_canaries_and_figures_of_files_apart_are_those_of_one_file(apart, whole):
    """
    North alone has canaries among its records, the coordinator their coins; each silo's figures are of its own file.
    """
    (plan, _), (_, here) = planned(apart.file, *CARRIED), planned(whole, *CARRIED)
    alone = run(plan, here, "", apart.root / "alone")
    with apart.members() as members:
        result = apart.run(answers(members), *CARRIED)
        carried = {name: len(m._preparing._made[1].population.train.examples) for name, m in members.items()}
    assert apart.told == []
    coins = load(read(apart.file, CARRIED)).canaries.included
    assert carried == {"east": 50, "north": 60 + coins.sum(), "south": 70}
    kept = [json.loads((each.folder / "canaries.json").read_text()) for each in (result, alone)]
    assert kept[0] == kept[1]
    assert kept[0]["included"] == coins.tolist()
    assert np.array_equal(model(result), model(alone))
    for what in ("canaries", "epsilon", "released_metrics"):
        assert result.summary[what] == alone.summary[what]
    apart.hold(plan.run, {})


def test_no_public_number_of_files_apart_depends_on_the_coins(apart):
    """
    Units, weights and charges of three seeds, at the coordinator and at the silo that carries them.
    """
    found = set()
    for seed in range(3):
        experiment = read(apart.file, (*CARRIED, f"audit.seed={seed}"))
        for population in (load(experiment), load(experiment, {"path": str(apart.files["north"])}, "north")):
            plan = make_plan(experiment, population)
            found.add((population.units, plan.weights, plan.epsilon, str(plan.canaries.share)))
    assert len(found) == 1


def test_a_coordinator_without_records_asks_its_model_for_the_canaries(apart):
    """
    The attack needs coins, candidates and the released model; whatever needs records says that they are elsewhere.
    """
    with apart.members() as members:
        result = apart.run(answers(members), *CARRIED)
    audited = open_run(result.folder)
    found = {finding.attack: finding for finding in audit(audited, choice(["sensor", "one_run", "lira", "dlg"]))}
    assert "the run's own final model" in found["one_run"].says
    assert found["one_run"].verdict is Verdict.HOLDS
    assert all("at their sites" in found[name].says for name in ("lira", "dlg"))
    assert found["sensor"].verdict is Verdict.HOLDS
    (result.folder / "canaries.json").write_text(json.dumps({"digest": "", "included": []}))
    with pytest.raises(VerificationError, match="other coins"):
        list(audit(audited, choice(["one_run"])))


def test_mislabelled_canaries_would_copy_what_no_machine_has(apart):
    with pytest.raises(PrivacyError, match="not every machine has"):
        planned(apart.file, "audit={ canaries=5, kind='mislabelled' }")


def test_the_coordinator_may_judge_on_data_of_its_own(apart, monkeypatch):
    """
    Public data, opened at the coordinator alone. Then sites train on all that they have, and the census says so.
    """
    (apart.root / "public.csv").write_text(HEADER.replace(",hospital", "") + "0.9,0.1,1\n0.1,0.2,0\n" * 5)
    form = "label='ill', features=['a','b'], ranges={ a=[0,1], b=[0,1] }, classes=['0','1'], public=true"
    judged = f"evaluation={{ every=1, data={{ table={{ path='{apart.root}/public.csv', {form} }} }} }}"
    here = {silo: {"path": str(path)} for silo, path in apart.files.items()}
    counts = {silo: census(read(apart.file, (judged,)), own, silo).records for silo, own in here.items()}
    assert counts == {"east": 50, "north": 60, "south": 70}
    way = (SEED, judged, *(f"silos.{silo}.records={count}" for silo, count in counts.items()))
    opened, sound = [], declared_module.test_data
    monkeypatch.setattr(declared_module, "test_data", lambda *asked: opened.append(1) or sound(*asked))
    with apart.members() as members:
        result = apart.run(answers(members), *way)
    assert (apart.told, len(opened)) == ([], 1)
    assert result.summary["metrics"]["accuracy"] == 1.0
    log = [json.loads(line) for line in (result.folder / "rounds.jsonl").read_text().splitlines()]
    assert all("accuracy" in line["metrics"] for line in log)
    assert not list(apart.root.glob("silos/*/runs/*/metrics.json"))


def with_persons(text: str) -> str:
    """The rows with a last column of persons, who have two records each."""
    head, *rows = text.splitlines()
    return "\n".join([f"{head},who", *(f"{row},{row.rpartition(',')[2]} {i // 2}" for i, row in enumerate(rows)), ""])


def test_persons_of_files_apart_are_those_of_one_file(apart, whole, capsys):
    """
    Where persons are protected, their number is declared, too: it sets weights and price. A person has one coin.
    """
    for file in apart.files.values():
        file.write_text(with_persons(file.read_text()))
    (apart.root / "all.csv").write_text(
        HEADER.strip()
        + ",who\n"
        + "".join("".join(apart.files[silo].read_text().splitlines(keepends=True)[1:]) for silo in SILOS)
    )
    people = (*CARRIED, NOISE("user"), "data.table.user='who'")
    sizes = {silo: census(read(apart.file, people), {"path": str(path)}, silo) for silo, path in apart.files.items()}
    assert all(size.records == 2 * size.persons for size in sizes.values())
    way = (
        *people,
        *(f"silos.{silo}.{k}={getattr(size, k)}" for silo, size in sizes.items() for k in ("records", "persons")),
    )
    machines = Apart.enrolled(apart.file, SILOS, unit=Unit.USER, test=True, epsilon=100.0, folder="persons")
    machines.files = apart.files
    (plan, nobody), (_, here) = planned(apart.file, *way), planned(whole, *people)
    assert nobody.units == here.units
    assert nobody.units == tuple(sizes[silo].persons + 20 * (silo == "north") for silo in SILOS)
    one_less = f"silos.south.persons={sizes['south'].persons - 1}"
    with machines.members() as members, pytest.raises(PrivacyError, match="number of records or persons"):
        machines.run(answers(members), *way, one_less)
    home = apart.root / "persons" / "south"
    (home / "site.toml").write_text(f"data = '{apart.files['south']}'\n")
    settings = [each for override in (*way, one_less) for each in ("--set", override)]
    _, out, error = sordino(capsys, "silo", "census", home, apart.file, *settings)
    assert out == f"[silos.south]\nrecords = {sizes['south'].records}\npersons = {sizes['south'].persons}\n"
    assert f"declares {sizes['south'].persons - 1} persons, and the silo has {sizes['south'].persons}" in error
    alone = run(plan, here, "", apart.root / "alone")
    with machines.members() as members:
        result = machines.run(answers(members), *way)
    assert machines.told == []
    assert np.array_equal(model(result), model(alone))
    assert result.summary["released_metrics"] == alone.summary["released_metrics"]


def test_every_machine_makes_the_same_plan(apart):
    """
    Path, rows of others and order of declarations have no part in the digest; a declared number has.
    """
    experiment = read(apart.file)
    at = {silo: load(experiment, {"path": str(path)}, silo) for silo, path in apart.files.items()}
    digests = {make_plan(experiment, population).digest for population in (load(experiment), *at.values())}
    assert len(digests) == 1
    assert [sorted(population.elsewhere) for population in at.values()] == [
        sorted(set(SILOS) - {silo}) for silo in SILOS
    ]
    counts = {silo: experiment.silos[silo].records for silo in SILOS}
    more = read(declared(apart.root, counts | {"east": counts["east"] + 1}))
    assert make_plan(more, load(more)).digest not in digests


def test_plan_and_result_at_a_coordinator_without_data(apart, capsys):
    code, out, _ = sordino(capsys, "plan", apart.file, "--json")
    assert code == 0
    assert {silo["name"] for silo in json.loads(out)["silos"]} == set(SILOS)
    from sordino.cli.show import show_result

    with apart.members() as members:
        result = apart.run(answers(members), SEED)
    show_result(result.summary, fresh=True)
    assert "held-out records are at the sites" in capsys.readouterr().out


def test_a_silo_with_another_number_does_not_join(apart):
    """
    One record more, then one less. Nobody is told how many there are.
    """
    text = apart.files["north"].read_text()
    count = read(apart.file).silos["north"].records
    for changed in (text + "0.111111,0.222222,0,north\n" * 5, text.replace(text.splitlines()[1] + "\n", "", 1)):
        apart.files["north"].write_text(changed)
        (apart.root / "silos" / "north" / "census.wanted").unlink(missing_ok=True)  # as `silo census` does
        now = census(read(apart.file), {"path": str(apart.files["north"])}, "north").records
        assert now != count
        with apart.members() as members, pytest.raises(PrivacyError, match="another number of records") as refused:
            apart.run(answers(members), SEED)
        assert str(now) not in str(refused.value)
        assert "records=" + str(count) in str(refused.value)


def test_what_others_have_does_not_move_a_silos_records(apart):
    """
    North's training records, whoever else is there.
    """
    experiment = read(apart.file)
    here = {"path": str(apart.files["north"])}
    before = load(experiment, here, "north")
    fewer = read(apart.file, ("silos.east.records=7",))
    after = load(fewer, here, "north")
    x, again = (p.train.silo(p.train.index("north")).x for p in (before, after))
    assert np.array_equal(x, again)
    held = before.test.silo(0)
    assert before.test.names == ("north",)
    assert len(x) + len(held) == 60


def test_a_row_of_another_silo_is_refused_and_quoted_to_nobody(apart, capsys):
    """
    What is wrong in a file is told at the site: a message may quote a record.
    """
    file = apart.files["south"]
    right = file.read_text()
    home = apart.root / "silos" / "south"
    (home / "site.toml").write_text(f"data = '{file}'\n")
    for wrong, why in (
        ("0.1,0.2,1,east\n", "names another silo than 'south' in row 70"),
        ("secret,0.2,1,south\n", "not numeric"),
    ):
        file.write_text(right + wrong)
        with apart.members() as members, pytest.raises(PrivacyError, match="its own data") as refused:
            apart.run(answers(members), SEED)
        assert "secret" not in str(refused.value)
        assert "east" not in str(refused.value)
        code, _, error = sordino(capsys, "silo", "census", home, apart.file)
        assert (code, why in one_line(error)) == (2, True)


def test_census_prints_what_is_to_be_declared(apart, capsys):
    home = apart.root / "silos" / "east"
    (home / "site.toml").write_text(f"data = '{apart.files['east']}'\n")
    count = read(apart.file).silos["east"].records
    draft = declared(apart.root, {"north": 3})
    code, out, error = sordino(capsys, "silo", "census", home, draft)
    assert (code, out, error) == (0, f"[silos.east]\nrecords = {count}\n", "")
    code, out, error = sordino(capsys, "silo", "census", home, draft, "--set", "silos.east.records=7", "--json")
    told = {"silo": "east", "records": count, "declared": 7, "persons": None, "declared_persons": None}
    assert json.loads(out) == told
    code, _, error = sordino(capsys, "silo", "census", home, draft, "--set", "silos.east.records=7")
    assert f"declares 7 records, and the silo has {count}" in error


def test_a_silo_reads_no_file_but_its_own(apart):
    experiment = read(apart.file)
    with pytest.raises(PrivacyError, match="no part in this experiment"):
        load(experiment, {"path": str(apart.files["east"])}, "west")
    with pytest.raises(PrivacyError, match="its own data"):
        load(experiment, {}, "east")


def test_nothing_runs_on_records_that_are_elsewhere(apart, capsys):
    """
    Training, figures, canaries, audits, comparisons: at the coordinator, and at a site for any silo but its own.
    """
    code, _, error = sordino(capsys, "run", apart.file, "--runs", apart.root / "runs", "--json")
    assert (code, "--engine flower" in one_line(error)) == (2, True)
    assert not (apart.root / "runs").exists()
    experiment = read(apart.file, (SEED,))
    for population in (load(experiment), load(experiment, {"path": str(apart.files["east"])}, "east")):
        setup = build(make_plan(experiment, population), population, together=False).setup
        stranger = population.train.index("south")
        elsewhere = pytest.raises(ConfigError, match="elsewhere")
        with elsewhere:
            population.train.silo(stranger)
        with elsewhere:
            setup.members([stranger])[0].load()
        with elsewhere:
            pooled(population.train)
        with elsewhere:
            craft(population.train, "south", 4, 0, "random")
        with pytest.raises(IndexError):
            population.train.examples.take(population.train.rows[stranger])
    coordinators = load(experiment)
    setup = build(make_plan(experiment, coordinators), coordinators, together=False).setup
    with pytest.raises(ConfigError, match="elsewhere"):
        metrics(setup, setup.layout.flatten(setup.module))
    with apart.members() as members:
        result = apart.run(answers(members), SEED)
    with pytest.raises(ConfigError, match="elsewhere"):
        open_run(result.folder)


@pytest.mark.parametrize(
    ("override", "why"),
    [
        ("audit={canaries=10, silo='west'}", "not a client"),
        ("compare={splits=1}", "compare"),
        ("evaluation.every=1", "evaluation.every"),
        ("evaluation.data={heart={}}", "same kind"),
        ("partition={natural={min_records=5}}", "partition"),
        ("privacy.unit='user'", "lack `persons`"),
        ("silos.east.persons=3", "not protected"),
        ("silos.west.epsilon=1.0", "lack `records`"),
        ("silos.west.records=0", "records"),
        ("data.table.path='all.csv'", "site.toml"),
        ("data.table.public=true", "load it everywhere"),
        ("data={table={label='ill',classes=['0','1']}}", "needs features and classes"),
        ("data={table={label='ill',features=['a']}}", "needs"),
        ("data={heart={}}", "everybody has"),
    ],
)
def test_what_needs_records_is_refused_with_a_reason(apart, override, why):
    with pytest.raises(ConfigError, match=why):
        planned(apart.file, override)


def test_texts_too(tmp_path, tiny_tokenizer_folder):
    """
    One made-up text tells the coordinator what the model reads: the same as a site's own texts.
    """
    file = tmp_path / "texts.toml"
    head, _, tail = TOML.partition("[data.table]")
    model = f"[model.text_classifier]\nbase = '{tiny_tokenizer_folder}'\nlength = 12\n"
    model += "[model.text_classifier.adapter.head]\n"
    text = '[data.text]\ntext = "note"\nlabel = "ill"\nclasses = ["0", "1"]\n'
    tail = tail[tail.index("[privacy]") :]
    notes = tmp_path / "notes.csv"
    notes.write_text("note,ill\n" + "".join(f"patient {i} rests,{i % 2}\n" for i in range(30)), encoding="utf-8")
    file.write_text(f"{head}{text}{model}{tail}", encoding="utf-8")
    count = census(read(file), {"path": str(notes)}, "north").records
    file.write_text(f"{file.read_text()}[silos.north]\nrecords={count}\n[silos.south]\nrecords=9\n", encoding="utf-8")
    nobody, north = load(read(file)), load(read(file), {"path": str(notes)}, "north")
    assert nobody.spec == north.spec
    assert nobody.units == north.units == (count, 9)
    assert len(north.train.silo(0)) == count


def test_whole_clients_too(apart):
    """
    Local DP of whole clients: their numbers of records count for nothing but agreement.
    """
    unit = ("privacy.unit='client'", "privacy.delta=1e-3", "privacy.epsilon=60.0", "stages=[{clip={norm=1.0}}]")
    text = apart.file.read_text().replace("clip = 0.5\n", "")
    apart.file.write_text(text)
    plan, population = planned(apart.file, *unit)
    assert population.units == (1, 1, 1)
    at_east = load(read(apart.file, unit), {"path": str(apart.files["east"])}, "east")
    assert make_plan(read(apart.file, unit), at_east).digest == plan.digest
