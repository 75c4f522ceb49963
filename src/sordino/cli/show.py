"""Plans, results and comparisons as text for people. The same numbers as `--json`."""

from __future__ import annotations

from typing import Any

import click
from rich.console import Console
from rich.table import Table

UNIT = {"record": "one record", "user": "one person's records inside a silo", "client": "one whole client"}
TRUST = {
    "silo": "nobody outside the silo needs to be trusted",
    "sum": "secure summation must be run honestly",
    "coordinator": "the coordinator must be trusted: it sees raw updates",
}
SUMS = """\
  sums          encrypted: all silos hold the one key. The coordinator sees the sum of two or more updates; one that
                breaks the protocol sees any of them, as released. No epsilon rests on the key"""
MANY = 12
WEAK = 10
"""Above this epsilon a guarantee is called weak, as the field's tiers do (at most 1, at most 10, more)."""


def number(value: float | None) -> str:
    """A figure for people: `none` where nothing bounds it."""
    return "none (unbounded)" if value is None else f"{value:.4g}"


def show_head(plan: dict[str, Any], source: str) -> None:
    """What is about to run, in three lines."""
    click.echo(f"{plan['name']}: {plan['clients']} clients, {plan['parameters']:,} parameters, {plan['rounds']} rounds")
    click.echo(f"data: {source}")
    if plan["private"]:
        smallest = min(silo["epsilon"] for silo in plan["silos"])
        tiers = f"{smallest:.4g} to " if smallest < 0.99 * plan["epsilon"] and plan["silos_per_person"] == 1 else ""
        click.echo(
            f"promise: epsilon {tiers}{plan['epsilon']:.4g} at delta {plan['delta']:.2g} for {UNIT[plan['unit']]} "
            f"({plan['adjacency']}, noise at {plan['noise_at']})\n"
        )
        _test(plan)
        _weak(plan)
    else:
        _loud()


def show_plan(plan: dict[str, Any]) -> None:
    """The whole plan."""
    console = Console(width=max(100, Console().width))
    if not plan["private"]:
        _loud()
        click.echo(f"plan {plan['digest'][:16]}: {plan['rounds']} rounds, {plan['parameters']:,} parameters")
        return
    click.echo(f"Plan {plan['name']}  digest {plan['digest'][:16]}")
    _test(plan)
    _weak(plan)
    click.echo(f"  protects      {UNIT[plan['unit']]}, {plan['adjacency']}, delta {plan['delta']:.3g}")
    click.echo(f"  noise at      {plan['noise_at']}: {TRUST[plan['noise_at']]}")
    if plan["experiment"].get("homomorphic"):
        click.echo(SUMS)
    if plan["silos_per_person"] is not None and plan["unit"] != "client":
        click.echo(f"  declared      a person is in at most {plan['silos_per_person']} of the silos")
    click.echo(
        f"  noise         {plan['mechanism']}, multiplier {plan['noise_multiplier']:.5g}; {plan['rounds']} rounds, "
        f"sampling rate {plan['sampling_rate']:.4g}"
    )
    if plan.get("asynchronous"):
        _asynchronous(plan["asynchronous"])
    click.echo(f"  accountant    {plan['accountant']}")
    console.print(_guarantee(plan), _silos(plan), _attack(plan), _composition(plan))
    outlook = plan["signal_to_noise"]
    click.echo(
        f"signal to noise: {number(outlook['step'])} in a step, {number(outlook['run'])} over the run: "
        f"{outlook['verdict']}"
    )
    if plan.get("metric_release"):
        _metric_release(plan)
    if plan["people"]:
        _people(plan["people"])
    if plan["canaries"]:
        click.echo(f"canaries: {plan['canaries']['says']}")
    if plan["silos_per_person"] is None and plan["unit"] != "client":
        click.echo(
            "a person's number of silos is not declared, so all silos are composed; "
            "if people are in one silo only, set privacy.silos_per_person = 1"
        )


def _asynchronous(rounds: dict[str, Any]) -> None:
    """What a round is where nobody waits for anybody."""
    part, age = rounds["participations"], rounds["age"]
    if rounds["arrivals"] == "first_come":
        click.echo(
            f"  rounds        asynchronous: the first {rounds['buffer']} updates that come "
            "(in one process, a schedule says which)\n"
            f"  participates  a client whenever it is done, and it pays for {part['most']} times; nothing is amplified"
        )
        return
    click.echo(
        f"  rounds        asynchronous: one per {rounds['buffer']} updates, {rounds['concurrency']} clients at work; "
        f"models are {age['mean']:.3g} rounds old, {age['most']} at most\n"
        f"  participates  a client at most {part['most']} times (cap {part['cap']}), {part['mean']:.3g} on average; "
        "who arrives when is public, so nothing is amplified"
    )


def show_result(summary: dict[str, Any], *, fresh: bool, resumed_at: int = 0) -> None:
    """A finished run."""
    if not fresh:
        click.echo(
            "this plan has already run; nothing was trained or charged again "
            "(another seed is another release, with its own price; a plan is known by counts and settings, so "
            "changed records need another name or seed)"
        )
    if resumed_at:
        click.echo(f"went on after {resumed_at} rounds of an interrupted run")
    if summary.get("rounds_lost"):
        click.echo(f"rounds lost: {summary['rounds_lost']}, charged but interrupted before their release was safe")
    _figures(summary)
    if summary.get("metric_release"):
        _released(summary["released_metrics"], summary["unit"])
    if summary["private"]:
        click.echo(
            f"spent: epsilon {summary['epsilon']:.4g} at delta {summary['delta']:.2g} per {summary['unit']}, "
            f"{summary['adjacency']}, noise at {summary['noise_at']}; charged in the ledger"
        )
    else:
        _loud()
    _test(summary)
    _sensor(summary.get("sensor"))
    click.echo(f"run folder: {summary['run_folder']}\n")


def _figures(summary: dict[str, Any]) -> None:
    """How good the model is, where that is known here."""
    if summary["metrics"] is None:
        click.echo("held-out records are at the sites: each has figures of its own, in its folder")
        return
    figures = {k: v for k, v in summary["metrics"].items() if k != "visibility"}
    shown = ", ".join(f"{name.replace('_', ' ')} {value:.4f}" for name, value in figures.items())
    start = summary.get("metrics_at_start", {}).get("loss")
    click.echo(f"held-out {shown}" + (f" (loss before training {start:.4f})" if start is not None else ""))
    if summary["metrics"]["visibility"] == "local":
        click.echo(
            "  these figures are for this machine: they were computed on private records and are not covered by epsilon"
        )


def _sensor(sensor: dict[str, Any] | None) -> None:
    """What the run found when it drove its own step before it started."""
    if sensor is not None:
        click.echo(
            f"sensor: {sensor['checks']} checks of noise, clip and sampling passed before the start, on made-up records"
        )


def show_comparison(rows: list[dict[str, Any]], splits: int) -> None:
    """The [compare] table."""
    names = {"auc": "pooled AUC", "within_client_auc": "within-client AUC", "accuracy": "accuracy", "loss": "loss"}
    present = [key for key in names if any(key in row for row in rows)]
    table = Table(title=f"public data, mean ± standard error over {splits} splits", title_justify="left")
    table.add_column("setting")
    for key in present:
        table.add_column(names[key], justify="right")
    for row in rows:
        cells = [f"{row[k]['mean']:.3f} ± {row[k]['standard_error']:.3f}" if k in row else "" for k in present]
        table.add_row(row["setting"], *cells)
    Console(width=max(100, Console().width)).print(table)


def _weak(plan: dict[str, Any]) -> None:
    """A guarantee that is no protection to speak of is said to be none."""
    if plan["epsilon"] is not None and plan["epsilon"] > WEAK:
        click.secho(
            f"WEAK: an epsilon above {WEAK} promises little: see what an attacker can achieve in the plan.",
            fg="yellow",
            bold=True,
        )


def _loud() -> None:
    click.secho(
        "NOT PRIVATE: this run protects nobody. Its model may reveal the records it was trained on.",
        fg="red",
        bold=True,
    )


def _test(value: dict[str, Any]) -> None:
    """A red line where something is simulated on which the guarantee rests."""
    if not value["test"]:
        return
    simulation = value["experiment"].get("simulation", {})
    reason = (
        "noise is seeded; whoever knows the seed can subtract it"
        if "noise_seed" in simulation
        else "secure summation is only played, by a process that sees every silo's sum"
    )
    click.secho(f"TEST: {reason}. This is no guarantee.", fg="red", bold=True)


def _guarantee(plan: dict[str, Any]) -> Table:
    table = Table(title="epsilon against …", title_justify="left")
    table.add_column("who looks")
    table.add_column("epsilon", justify="right")
    for view, epsilon in plan["views"].items():
        table.add_row(view, number(epsilon))
    return table


def _silos(plan: dict[str, Any]) -> Table:
    title = "per silo" if plan["unit"] != "client" else "per account"
    table = Table(title=title, title_justify="left")
    for name, justify in (
        ("name", "left"),
        ("units", "right"),
        ("epsilon", "right"),
        ("noise multiplier", "right"),
        ("releases", "right"),
        ("weight", "right"),
    ):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    for silo in plan["silos"][:MANY]:
        table.add_row(
            silo["name"],
            f"{silo['units']:,}",
            f"{silo['epsilon']:.4g}",
            f"{silo['noise_multiplier']:.5g}",
            f"{silo['releases']:,}",
            f"{silo['weight']:.3g}",
        )
    if len(plan["silos"]) > MANY:
        table.add_row(f"… {len(plan['silos']) - MANY} more", "", "", "", "", "")
    return table


def _attack(plan: dict[str, Any]) -> Table:
    table = Table(title="what an attacker can achieve at most, for the weakest account", title_justify="left")
    table.add_column("figure")
    table.add_column("bound", justify="right")
    for fpr, tpr in plan["attack"]["tpr_at_fpr"].items():
        table.add_row(f"true positives at {float(fpr):.1%} false positives", f"{tpr:.2%}")
    table.add_row("area under the ROC curve", f"{plan['attack']['auc']:.3f}")
    table.add_row("balanced accuracy", f"{plan['attack']['accuracy']:.3f}")
    return table


def _people(ways: dict[str, Any]) -> None:
    """Which way of protecting persons learns more."""
    click.echo(
        f"persons: signal to noise over the run {number(ways['mean'])} by their mean gradients, "
        f"{number(ways['records'])} by at most {ways['records_per_person']} records each, "
        f'for the same epsilon and work: better is people = "{ways["better"]}"'
    )


def _metric_release(plan: dict[str, Any]) -> None:
    """What leaves each silo besides training, and who pays how much for it."""
    asked, unit = plan["metric_release"], "person" if plan["unit"] == "user" else plan["unit"]
    own = asked["held_out_epsilon"]
    click.echo(
        f"released figures: each silo's held-out {' and '.join(asked['figures'])}, once, {asked['mechanism']} noise of "
        f"std {asked['error']:.4g} {unit}s on each sum; the epsilons above pay for it"
        + ("" if own is None else f" (a {unit} that is held out risks {own:.4g}, and nothing by the training)")
    )


def _released(figures: dict[str, Any] | None, unit: str) -> None:
    """Figures that went through a door; the errors are those of their noise alone."""
    if figures is None:
        click.echo("released figures: charged, and lost in a crash before they were safe; never drawn again")
        return
    unit = "persons" if unit == "user" else f"{unit}s"
    shown = ", ".join(
        f"{k} {figures[k]:.4f} ± {figures[f'{k}_error']:.4f}" for k in ("accuracy", "loss") if k in figures
    )
    click.echo(
        f"released {shown} over {figures['units']:.0f} ± {figures['units_error']:.0f} held-out {unit} "
        "(± is the noise's standard error); these may leave the silos"
    )
    if figures["away"]:
        click.echo(f"without {', '.join(figures['away'])}: charged there, and in none of these figures")


def _composition(plan: dict[str, Any]) -> Table:
    table = Table(title="the same charges under other accountants", title_justify="left")
    table.add_column("method")
    table.add_column("epsilon", justify="right")
    table.add_column("note")
    for row in plan["composition"]:
        epsilon = "" if row["epsilon"] is None else f"{row['epsilon']:.4g}" + ("" if row["valid"] else " (not a bound)")
        table.add_row(row["method"], epsilon, row["note"])
    return table
