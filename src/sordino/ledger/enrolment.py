"""A new silo: its key, its ledger with one account, and its rules, in one folder that nobody else needs to read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sordino.core.errors import ConfigError
from sordino.ledger.account import Account
from sordino.ledger.keys import SigningKey, VerifyKey
from sordino.ledger.ledger import Ledger
from sordino.ledger.rules import Rules, read_rules
from sordino.ledger.silo import FILE


def enrol(
    folder: Path, account: Account, *, coordinators: Sequence[VerifyKey] = (), officers: Sequence[VerifyKey] = ()
) -> VerifyKey:
    """Make a silo's folder.

    Args:
        folder: A new or an empty one.
        account: The silo's people and what they may lose in all. Its name is the silo's.
        coordinators: Whose checkpoints it keeps, and who may ask it for grants.
        officers: Whose signatures a plan needs.

    Returns:
        The silo's public key.

    Raises:
        ConfigError: The folder holds something already, or the name is no name of a key.
    """
    if folder.exists() and any(folder.iterdir()):
        raise ConfigError.about("silo", "holds something already", "choose a new folder", folder=str(folder))
    key = SigningKey.generate(account.name)
    folder.mkdir(parents=True, exist_ok=True)
    rules = Rules(account.name)
    key.save(folder / rules.key)
    with Ledger(folder / rules.ledger) as ledger:
        ledger.open_account(account)
    (folder / FILE).write_text(_template(account, coordinators, officers), encoding="utf-8")
    read_rules(folder / FILE)
    return key.public


def _template(account: Account, coordinators: Sequence[VerifyKey], officers: Sequence[VerifyKey]) -> str:
    def listed(keys: Sequence[VerifyKey]) -> str:
        return "[" + ", ".join(f'"{key}"' for key in keys) + "]"

    return f"""# The rules of silo {account.name}: which plans it takes part in. Nobody outside can change them.

name = "{account.name}"

# Public keys of coordinators: nobody else gets a grant.
coordinators = {listed(coordinators)}

# Public keys of those who may approve plans, and how many of them must sign; [] asks for no signature.
officers = {listed(officers)}
need = 1

# At most, per plan. What all plans together may spend stands in the ledger: epsilon {account.epsilon:g}, delta \
{account.delta:g}.
# epsilon = 2.0
# delta = 1e-5
# clip = 1.0
# rounds = 100
unit = ["{account.unit}"]
noise_at = ["silo"]              # "silo": nobody outside needs to be trusted; also "sum", "coordinator"
# plans = ["…"]                  # digests of the only plans allowed
# data = ["table"]               # the only data sets, as under [data]
# columns = ["age", "ill"]       # the only columns that a plan may read
# models = ["logistic"]          # the only models, by name or by base
# min_cohort = 3                 # not with fewer silos in the plan
# colluding = 0.25               # noise in shares must allow for so many silos that tell
test = {str(account.test).lower():<24} # simulations, whose noise may be predictable

same_code = true                 # refuse a plan that was approved with other code than runs here
valid_s = 3600                   # for how many seconds a grant may be used
"""
