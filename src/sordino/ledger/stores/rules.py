"""What no program may do to a ledger's tables, in words that every database turns into triggers."""

from __future__ import annotations

FIXED = ("event", "admission", "admission_line", "quota", "kind", "policy", "checkpoint", "witness")
"""Tables that only grow."""

KEPT = (*FIXED, "head", "account", "allowance", "run", "charge", "charge_line", "outbox")
"""Tables whose rows are never deleted."""


def forbidden(differs: str) -> dict[str, str]:
    """By table, the change of a row that is refused: NEW is the row as it would be, OLD as it is.

    Args:
        differs: How the database writes `<>` where a value may be missing.

    Returns:
        Conditions in SQL: spent never falls, a limit moves only with a newer policy, terms stay, a retired account
        stays retired, fences and the history go forward, a settled charge and the digest of its bytes stay, and so
        does a line, but that a silo's consent may come later, once.
    """
    terms = ("name", "unit", "adjacency", "currency", "rdp_order", "scope", "parent", "overlap", "test", "tier")
    changed = " OR ".join(f"NEW.{term} {differs} OLD.{term}" for term in terms)
    parts = ("txid", "account_id", "kind_id", "count", "units", "derived")
    rewritten = " OR ".join(f"NEW.{part} {differs} OLD.{part}" for part in parts)
    return {
        "account": "NEW.spent_units < OLD.spent_units OR NEW.delta_spent_units < OLD.delta_spent_units"
        " OR (NEW.limit_units <> OLD.limit_units OR NEW.delta_limit_units <> OLD.delta_limit_units"
        " OR NEW.epsilon <> OLD.epsilon OR NEW.delta <> OLD.delta)"
        " AND NEW.policy <= OLD.policy OR NEW.policy < OLD.policy"
        f" OR OLD.state = 'retired' AND NEW.state <> 'retired' OR {changed}",
        "allowance": "NEW.spent < OLD.spent OR NEW.allowed <> OLD.allowed",
        "run": "NEW.fence <= OLD.fence",
        "charge": "OLD.state <> 'reserved' OR NEW.fence <> OLD.fence OR NEW.run <> OLD.run",
        "charge_line": f"OLD.consent IS NOT NULL AND NEW.consent {differs} OLD.consent"
        f" OR OLD.absent AND NOT NEW.absent OR {rewritten}",
        "outbox": "NEW.sha256 <> OLD.sha256 OR (OLD.published_at IS NOT NULL AND NEW.published_at IS NULL)",
        "head": "NEW.seq <> OLD.seq + 1",
    }


def guards(differs: str) -> list[tuple[str, str, str, str | None, str]]:
    """Every trigger: its name, table, what it comes before, its condition if it has one, and what it says."""
    kept = [(f"{table}_kept", table, "DELETE", None, f"{table}: rows are never deleted") for table in KEPT]
    fixed = [(f"{table}_fixed", table, "UPDATE", None, f"{table}: append only") for table in FIXED]
    forward = [
        (f"{table}_forward", table, "UPDATE", broken, f"{table}: spent never falls, terms never change")
        for table, broken in forbidden(differs).items()
    ]
    return [*kept, *fixed, *forward]
