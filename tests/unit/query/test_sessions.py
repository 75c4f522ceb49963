"""Sessions: charged before drawn, the same answer for ever, refused at the end of the budget."""

from __future__ import annotations

import dataclasses
import math

import pytest
from patients import BY_SEX, DECLARED, FILE, account, books, session, source

from sordino.core.errors import BudgetExhausted, BudgetRefused, ConfigError, PrivacyError, VerificationError
from sordino.core.types import Adjacency, Unit
from sordino.ledger import currencies, verify
from sordino.privacy import events
from sordino.query import Declared, Offer, Question, Session, Source, Statistic, noise, prices, shelf

COUNT = Statistic("count")
PAYERS = [
    (account(), {"epsilon": 0.3}),
    (account(adjacency=Adjacency.REPLACE_ONE), {"epsilon": 0.3}),
    (account(adjacency=Adjacency.ZERO_OUT), {"epsilon": 0.7}),
    (account(currency="zcdp"), {"epsilon": 0.3}),
    (account(currency="zcdp", adjacency=Adjacency.REPLACE_ONE), {"rho": 0.01}),
    (account(currency="zcdp"), {"rho": 0.007}),
    (account(currency="rdp"), {"epsilon": 0.3}),
    (account(currency="rdp", adjacency=Adjacency.REPLACE_ONE), {"rho": 0.001}),
]


@pytest.mark.parametrize(("payer", "offer"), PAYERS, ids=lambda value: getattr(value, "currency", str(value)))
def test_the_price_shown_is_what_the_ledger_charges(payer, offer, tmp_path):
    """
    To the last of its units; and so is what it says of how many more fit.
    """
    one = session(tmp_path, payer)
    ledger, room = one._ledger, one._ledger.room("north")
    price = one.price(BY_SEX, **offer)
    assert ledger.room("north") == room
    assert not ledger.charges(one.run)

    answer = one.sql(BY_SEX, **offer)

    units = room - ledger.room("north")
    assert (answer.price, price.cost) == (price, units / 1e12)
    assert price.left == pytest.approx(ledger.room("north") / 1e12, rel=1e-15)
    assert price.more == room // units - 1
    assert sum(line.count for charge in ledger.charges(one.run) for line in charge.lines) == 3
    ledger.close()
    assert verify(tmp_path / "north.db").problems == ()


def test_offers_in_equal_parts_cost_the_account_no_more_than_the_offer(tmp_path):
    """
    A pure account of 1 pays ten questions at 0.1, of three releases each: no unit is lost to the bits of a float.
    """
    one = session(tmp_path, account(epsilon=1.0))
    statistics = (COUNT, Statistic("sum", "age"), Statistic("sum", "chol"))
    for again in range(10):
        one.ask(*statistics, epsilon=0.1, again=again)
    with pytest.raises(BudgetExhausted):
        one.ask(*statistics, epsilon=0.1, again=10)


@pytest.mark.parametrize(
    ("currency", "offer"), [("pure", {"epsilon": 0.4}), ("zcdp", {"epsilon": 0.2}), ("zcdp", {"rho": 0.005})]
)
def test_a_session_stops_at_its_budget(currency, offer, tmp_path):
    """
    The refusal names the account, what is missing and what would fit; that fits, and then nothing does.
    """
    one = session(tmp_path, account(currency=currency, epsilon=1.0))
    answered = 0
    while one.price(BY_SEX, again=answered, **offer).more >= 0:
        one.sql(BY_SEX, again=answered, **offer)
        answered += 1
    with pytest.raises(BudgetExhausted, match=rf"account 'north': needs .* of {currency} and .* is left") as stopped:
        one.sql(BY_SEX, again=answered, **offer)
    ledger, price = one._ledger, one.price(BY_SEX, again=answered, **offer)
    assert answered >= 2
    assert (price.more, price.fits[0]) == (-1, *offer)
    assert f"{price.fits[0]}={price.fits[1]:g} would fit" in str(stopped.value)
    assert ledger.balance("north").epsilon_used <= 1.0
    assert ledger.balance("north").committed == 3 * answered

    one.sql(BY_SEX, again=answered, **dict([price.fits]))
    with pytest.raises(BudgetExhausted):
        one.sql(BY_SEX, again=answered + 1, **dict([price.fits]))
    ledger.close()
    assert verify(tmp_path / "north.db").problems == ()


def test_the_same_question_is_one_release(tmp_path, monkeypatch):
    """
    In other words, in another session, under other names: the same numbers, nothing charged, nothing drawn.
    """
    table = source(tmp_path)
    with books(tmp_path) as ledger:
        first = Session(table, ledger, "north", answers=tmp_path / "answers").sql(BY_SEX, epsilon=0.5)
    monkeypatch.setattr(noise, "opendp", lambda: pytest.fail("drew again"))
    with books(tmp_path) as ledger:
        again = Session(table, ledger, "north", answers=tmp_path / "answers")
        room = ledger.room("north")
        text = "select avg(age) as mean, sex, count(*) AS n from patients group by sex"
        assert again.price(text, epsilon=0.5).answered
        second = again.sql(text, epsilon=0.5)

        assert (first.txid, ledger.room("north")) == (second.txid, room)
        values = {(f.group, f.name): f.value for f in second.figures}
        assert all(values[f.group, {"COUNT(*)": "n", "AVG(age)": "mean"}[f.name]] == f.value for f in first.figures)
        assert len(ledger.charges("query/north")) == 1


@pytest.mark.parametrize(
    "changed",
    [{"edition": "2027"}, {"ranges": {"age": (20, 91)}}, {"missing": "refuse"}],
    ids=str,
)
def test_another_declaration_is_another_question(changed):
    terms = {name: getattr(DECLARED, name) for name in DECLARED.__dataclass_fields__} | {"candidates": {}}
    digests = {Question((Statistic("avg", "age"),)).digest(Declared(**terms | new), "north") for new in ({}, changed)}
    assert len(digests) == 2


class Crash(Exception):
    """The process dies here."""


def crash(*_arguments, **_terms):
    raise Crash


def test_a_crash_after_commit_gives_the_same_bytes(tmp_path, monkeypatch):
    one = session(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(shelf, "keep", crash)
        with pytest.raises(Crash):
            one.count(epsilon=0.1)
    (charge,) = one._ledger.charges(one.run)
    content, digest = one._ledger.artefact(charge.txid), charge.txid
    one._ledger.close()

    monkeypatch.setattr(noise, "noised", lambda *_: pytest.fail("drew again"))
    after = session(tmp_path)
    answer = after.count(epsilon=0.1)

    assert answer.txid == digest
    assert (tmp_path / "answers" / f"{digest}.json").read_bytes() == content
    assert after._ledger.artefact(digest) is None  # published: the ledger keeps the digest
    assert after.count(epsilon=0.1) == answer


def test_a_crash_before_commit_is_spent_and_never_drawn_again(tmp_path, monkeypatch):
    """
    Its noise may have been seen. The next draw is charged.
    """
    one = session(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(one._ledger, "commit", crash)
        with pytest.raises(Crash):
            one.count(epsilon=0.1)
    one._ledger.close()

    after = session(tmp_path)
    with pytest.raises(PrivacyError, match=r"interrupted; its charge is forfeited.*again"):
        after.count(epsilon=0.1)
    after.count(epsilon=0.1, again=1)
    balance = after._ledger.balance("north")
    assert (balance.forfeited, balance.committed, round(balance.epsilon_used, 9)) == (1, 1, 0.2)


def test_an_answer_that_was_changed_or_lost_is_not_given(tmp_path):
    one = session(tmp_path)
    file = tmp_path / "answers" / f"{one.count(epsilon=0.1).txid}.json"
    content = file.read_bytes()
    file.write_bytes(content.replace(b"[[[", b"[[[1"))
    with pytest.raises(VerificationError, match="not what was released"):
        one.count(epsilon=0.1)
    file.unlink()
    with pytest.raises(VerificationError, match="is gone"):
        one.count(epsilon=0.1)
    file.write_bytes(content)
    one.count(epsilon=0.1)


def test_nothing_is_charged_for_a_table_that_cannot_be_read(tmp_path):
    """
    Nor for a question that cannot be asked.
    """
    gone = Source(DECLARED, tmp_path / "gone.csv")
    one = session(tmp_path, table=gone)
    for asked in ({}, {"where": "height > 3"}):
        with pytest.raises(ConfigError):
            one.count(epsilon=0.1, **asked)
    assert one._ledger.balance("north").epsilon_used == 0


@pytest.mark.parametrize(
    ("accounts", "offer", "why"),
    [
        ([account(currency="plan")], {"epsilon": 1}, "pays whole plans"),
        ([account(currency="gdp")], {"rho": 0.1}, "answers are whole numbers"),
        ([account()], {"rho": 0.1}, "counts pure epsilon, not rho"),
        (
            [account("all", "rdp", scope="domain"), account(parent="all")],
            {"epsilon": 0.1},
            "not what account 'all' can",
        ),
        ([account()], {}, "give epsilon or rho"),
        ([account()], {"epsilon": 1, "rho": 1}, "one of them"),
        ([account()], {"epsilon": float("nan")}, "finite"),
        ([account()], {"epsilon": -1}, "above 0"),
    ],
)
def test_accounts_that_cannot_count_a_price_say_why(accounts, offer, why, tmp_path):
    ledger = books(tmp_path, *accounts)
    one = Session(source(tmp_path), ledger, "north", answers=tmp_path)
    with pytest.raises(ConfigError, match=why):
        one.price("SELECT COUNT(*) FROM patients", **offer)


def test_all_that_contain_the_account_pay_and_so_do_quotas(tmp_path):
    """
    How many more fit is what the poorest of them can bear.
    """
    payers = [
        account("all", "zcdp", epsilon=3.0, scope="domain"),
        account(parent="all"),
        account("ada", epsilon=0.5, scope="analyst"),
    ]
    ledger = books(tmp_path, *payers)
    one = Session(source(tmp_path), ledger, "north", answers=tmp_path / "answers", quotas=["ada"])
    rooms = {name: ledger.room(name) for name in ("all", "north", "ada")}
    price = one.price(BY_SEX, epsilon=0.2)
    assert price.more == 1
    one.sql(BY_SEX, epsilon=0.2)
    spent = {name: (rooms[name] - ledger.room(name)) / 1e12 for name in rooms}
    assert spent == pytest.approx({"all": 3 * (0.2 / 3) ** 2 / 2, "north": 0.2, "ada": 0.2})
    with pytest.raises(BudgetExhausted, match="'ada'"):
        one.sql(BY_SEX, epsilon=0.4)


def test_persons_pay_for_all_their_rows(tmp_path):
    """
    By the textbook: so many times a row's bound over ε. And without a bound on rows there is no answer.
    """
    person = account(unit=Unit.USER)
    terms = {name: getattr(DECLARED, name) for name in DECLARED.__dataclass_fields__}
    errors, ranks = [], []
    for cap in (1, 8):
        table = Source(Declared(**terms | {"rows_per_person": cap}), FILE)
        one = session(tmp_path, person, table=table)
        errors.append(one.sum("age", epsilon=0.1).figures[0].standard_error)
        ranks.append(one.quantile("age", epsilon=0.1).figures[0].rank_error)
    assert errors == pytest.approx([2**0.5 * 90 * cap / 0.1 for cap in (1, 8)], rel=1e-6)
    assert ranks == pytest.approx([2 * cap / 0.1 * math.log(71 / 0.05) / 2 for cap in (1, 8)], rel=1e-6)
    for lacking, why in (({"rows_per_person": None}, "bound on their rows"), ({"person": None}, "names persons")):
        with pytest.raises(ConfigError, match=why):
            session(tmp_path, person, table=Source(Declared(**terms | lacking), FILE)).count(epsilon=0.1)
    with pytest.raises(ConfigError, match="not of whole clients"):
        session(tmp_path, account("c", unit=Unit.CLIENT)).count(epsilon=0.1)


@pytest.mark.parametrize("currency", ["pure", "zcdp"])
def test_a_neighbour_who_replaces_another_costs_twice_the_noise(currency, tmp_path):
    """
    By the textbook: Laplace noise of the bound over ε, Gaussian noise of the bound over √(2ρ).
    """
    offer = {"epsilon": 0.1} if currency == "pure" else {"rho": 0.0002}
    one = 2**0.5 * 90 / 0.1 if currency == "pure" else 90 / (2 * 0.0002) ** 0.5
    payers = [account(str(relation), currency, adjacency=relation) for relation in Adjacency]
    table, ledger = source(tmp_path), books(tmp_path, *payers)
    for payer in payers:
        asking = Session(table, ledger, payer.name, answers=tmp_path / "a")
        error = asking.sum("age", **offer).figures[0].standard_error
        assert error == pytest.approx(2 * one if payer.adjacency is Adjacency.REPLACE_ONE else one, rel=1e-6)
        rank = asking.quantile("age", **offer).figures[0].rank_error
        scale = 2 / (offer.get("epsilon") or (8 * offer["rho"]) ** 0.5)
        twice = 2 if payer.adjacency is Adjacency.REPLACE_ONE else 1
        assert rank == pytest.approx(twice * scale * math.log(71 / 0.05) / 2, rel=1e-6)


def test_a_discrete_count_risks_more_at_a_renyi_order_than_laplace_noise_of_the_line():
    """
    Why an rdp account is charged ρ, and never a Laplace event: its losses are ±ε, with nothing between.
    """
    payer, epsilon = account(currency="rdp"), 0.5
    likely = 1 / (1 + math.exp(-epsilon))
    order = payer.order
    parts = likely**order * (1 - likely) ** (1 - order) + (1 - likely) ** order * likely ** (1 - order)
    discrete = math.log(parts) / (order - 1)

    assert currencies.price(events.key(events.laplace(1 / epsilon)), payer) < discrete
    tariff = prices.tariff(Offer(epsilon=epsilon), 1, {"north": (payer, 10**12)}, payer.adjacency)
    assert currencies.price(tariff.key, payer) >= discrete


def test_what_is_frozen_is_refused_and_not_called_exhausted(tmp_path, monkeypatch):
    one = session(tmp_path)

    def frozen(*_arguments):
        raise BudgetRefused.about("account 'north'", "is frozen", "ask those who may thaw it")

    monkeypatch.setattr(one._ledger, "reserve", frozen)
    with pytest.raises(BudgetRefused, match="is frozen") as told:
        one.count(epsilon=0.1)
    assert not isinstance(told.value, BudgetExhausted)


def test_one_block_does_not_pay_for_the_rows_of_another(tmp_path):
    """
    A table is read whole; a block may pay for it only where it is all there is.
    """
    names = ("north/admitted[..,2026-01-01)", "north/admitted[2026-01-01,2026-04-01)")
    blocks = [dataclasses.replace(account(), name=name, scope="block", parent="north") for name in names]
    ledger = books(tmp_path, account(), blocks[0])
    Session(source(tmp_path), ledger, names[0], answers=tmp_path / "answers")
    ledger.open_account(blocks[1])
    for name in names:
        with pytest.raises(ConfigError, match="one block of several"):
            Session(source(tmp_path), ledger, name, answers=tmp_path / "answers")
