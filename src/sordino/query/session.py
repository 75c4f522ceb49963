"""A session: questions to one table, paid by one account of a ledger.

question ─ price ─► reserve ─► permits ─► noise ─► commit(bytes) ─► shelf ─► published ─► Answer
              └ refused? nothing is drawn             └ asked again, also after a crash: the same bytes, for nothing
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sordino.core.errors import BudgetExhausted, BudgetRefused, ConfigError
from sordino.core.types import Unit
from sordino.ledger import Account, Ledger, scopes, transaction
from sordino.privacy.permits import Line, Reservation
from sordino.query import answers, noise, prices, rows, shelf, sql
from sordino.query.answers import Answer, Part, Released
from sordino.query.declared import Source
from sordino.query.measures import Cells, Measure, Rank
from sordino.query.prices import Offer, Price, Tariff
from sordino.query.questions import Question, Statistic


class Session:
    """Ask a table for statistics; every answer is charged before its noise is drawn.

    The same question for the same price is one release for ever: asked again it gives the same answer and costs
    nothing. `again=1`, 2, … asks for a fresh draw, which is charged.

    Args:
        source: The table, from `read`.
        ledger: Who keeps the budget.
        account: A live account ("pure", "zcdp", "rdp") over the people of this table.
        answers: Folder for the answers that were paid for.
        quotas: Live accounts of a run or an analyst that pay too.
    """

    def __init__(
        self, source: Source, ledger: Ledger, account: str, *, answers: Path, quotas: Sequence[str] = ()
    ) -> None:
        known = {terms.name: terms for terms in ledger.accounts()}
        ledger.room(account)  # says which accounts there are, if it is none of them
        self._source, self._ledger, self._terms = source, ledger, known[account]
        self._folder, self._quotas = answers, tuple(quotas)
        _refuse_parts(self._terms, known.values())
        self._payers = [known[account], *(known[name] for name in scopes.payers([account], known))]
        for quota in quotas:
            ledger.room(quota)
            self._payers.append(known[quota])
        self._rows: rows.Rows | None = None
        self._open = False

    @property
    def run(self) -> str:
        """The name under which the ledger keeps the account's questions."""
        return f"query/{self._terms.name}"

    def count(self, column: str | None = None, **asked: Any) -> Answer:
        """How many rows there are, or have a column. `asked`: see `ask`."""
        return self.ask(Statistic("count", column), **asked)

    def sum(self, column: str, **asked: Any) -> Answer:
        """The sum of a numeric column."""
        return self.ask(Statistic("sum", column), **asked)

    def mean(self, column: str, **asked: Any) -> Answer:
        """The mean of a numeric column: half of the price for the sum, half for the count."""
        return self.ask(Statistic("avg", column), **asked)

    def quantile(self, column: str, level: float = 0.5, **asked: Any) -> Answer:
        """The value below which a share of the rows lies, among the declared candidates."""
        return self.ask(Statistic("quantile", column, level=level), **asked)

    def histogram(self, column: str, bins: int | tuple[float, ...] | None = None, **asked: Any) -> Answer:
        """Rows by parts of a range, or by category."""
        return self.ask(Statistic("histogram", column, bins=bins), **asked)

    def ask(
        self,
        *statistics: Statistic,
        by: Sequence[str] = (),
        where: str | None = None,
        epsilon: float | None = None,
        rho: float | None = None,
        again: int = 0,
    ) -> Answer:
        """Several statistics of the same groups and rows, for one price in equal parts.

        Args:
            statistics: What is asked for.
            by: Columns with declared values.
            where: A condition in SQL, such as "age >= 65 AND sex = 'female'".
            epsilon: The price of it all, or
            rho: the price in zero-concentrated differential privacy.
            again: The how many-th fresh draw.

        Raises:
            BudgetExhausted: What is left does not pay for it; says what would fit. Nothing was drawn.
            ConfigError: It asks for what is not declared, or the account cannot count such a price.
        """
        condition = None if where is None else sql.condition(where)
        return self.answer(Question(statistics, tuple(by), condition), Offer(epsilon, rho), again=again)

    def sql(self, text: str, *, epsilon: float | None = None, rho: float | None = None, again: int = 0) -> Answer:
        """The same in SQL; see `sql.question` for the part of it that is understood."""
        question = sql.question(text, self._source.declared.name)
        return self.answer(question, Offer(epsilon, rho), again=again)

    def price(self, text: str, *, epsilon: float | None = None, rho: float | None = None, again: int = 0) -> Price:
        """What a question in SQL would cost. Nothing is charged, drawn or read of the rows."""
        return self.priced(sql.question(text, self._source.declared.name), Offer(epsilon, rho), again=again)

    def priced(self, question: Question, offer: Offer, *, again: int = 0) -> Price:
        """What a question would cost; see `price`."""
        txid, tariff, payers = self._charge(question, offer, again)
        answered = self._ledger.state(txid) == "committed"
        return prices.price(self._terms.name, offer, tariff.count, payers, answered=answered)

    def answer(self, question: Question, offer: Offer, *, again: int = 0) -> Answer:
        """Charge, draw, commit, publish; or the same answer again, if it was paid for before."""
        txid, tariff, _ = self._charge(question, offer, again)
        if not shelf.settled(self._ledger, txid):
            self._start()
        price = self.priced(question, offer, again=again)
        content = shelf.earlier(self._ledger, txid, self._folder)
        if content is None:
            noise.opendp()  # a missing library must not cost a charge, nor a file that cannot be read
            private = self._read()
            reservation = self._reserve(txid, tariff, price)
            content = bytes(self._released(question, tariff, reservation, private))
            self._ledger.commit(reservation, content)
        shelf.keep(self._ledger, txid, self._folder, content)
        found = answers.figures(question, self._source.declared, Released.of(content))
        return Answer(txid, question.by, found, price, self._terms.test)

    def _start(self) -> None:
        """Take the account's questions over; what an interrupted session left open counts as spent."""
        if not self._open:
            self._ledger.open_run(self.run)
            self._ledger.forfeit_open(self.run)
            self._open = True

    def _charge(self, question: Question, offer: Offer, again: int) -> tuple[str, Tariff, prices.Payers]:
        """A question's identity and what it is charged: from public facts only."""
        if again < 0:
            raise ConfigError.about("query", "must be 0 or more", again=again)
        releases = len(question.measures(self._source.declared))
        payers = {account.name: (account, self._ledger.room(account.name)) for account in self._payers}
        tariff = prices.tariff(offer, releases, payers, self._terms.adjacency)
        digest = question.digest(self._source.declared, self._terms.name, tariff.key, tariff.law)
        return transaction("query", None, "query", digest, again), tariff, payers

    def _reserve(self, txid: str, tariff: Tariff, price: Price) -> Reservation:
        line = Line(self._terms.name, self._terms.unit, tariff.key, tariff.count)
        try:
            return self._ledger.reserve(txid, self.run, None, "query", [line], self._quotas)
        except BudgetRefused as refused:
            if price.more >= 0:  # not the budget: an account is frozen, say
                raise
            who_and_what, _, _ = str(refused).partition(";")
            raise BudgetExhausted(f"{who_and_what}; {price.remedy}") from None

    def _released(self, question: Question, tariff: Tariff, reservation: Reservation, private: rows.Rows) -> Released:
        declared = self._source.declared
        where = np.ones(private.size, bool)
        if question.where is not None:
            where = question.where.truth(private, declared)[0]
        cells = Cells(question.by).of(private, where, declared)
        count = len(Cells(question.by).labels(declared))
        parts = [
            self._part(measure, private, cells, count, tariff, reservation) for measure in question.measures(declared)
        ]
        return Released(tuple(parts))

    def _part(
        self,
        measure: Measure | Rank,
        private: rows.Rows,
        cells: rows.Steps,
        count: int,
        tariff: Tariff,
        reservation: Reservation,
    ) -> Part:
        """One measure through its door: what a neighbour moves is derived from the declaration."""
        declared, move = self._source.declared, tariff.moves * self._rows_per_unit()
        permit = reservation.take([self._terms.name], tariff.key)
        if isinstance(measure, Rank):
            values = [measure.values(private, cells, cell) for cell in range(count)]
            points = declared.points(measure.column)
            places, error = noise.chosen(permit, values, points, measure.level, move, tariff)
            return Part(tuple(places), tariff.law, 0.0, error)
        exact = measure.exact(private, cells, count, declared)
        noisy, spread = noise.noised(permit, exact, move * measure.bound(declared), tariff)
        return Part(tuple(noisy), tariff.law, spread.scale)

    def _rows_per_unit(self) -> int:
        return (self._source.declared.rows_per_person or 1) if self._terms.unit is Unit.USER else 1

    def _read(self) -> rows.Rows:
        if self._rows is None:
            self._rows = rows.load(self._source, self._terms.unit)
        return self._rows


def _refuse_parts(account: Account, known: Iterable[Account]) -> None:
    """Refuse one block of several: a question reads the rows of all, whose people would pay nothing."""

    def whole(part: Account) -> str:
        return part.parent or part.name.rpartition("/")[0]

    blocks = [part.name for part in known if part.scope == "block" and whole(part) == whole(account)]
    if account.scope == "block" and blocks != [account.name]:
        raise ConfigError.about(
            "query",
            "is one block of several, and a question reads the rows of all of them",
            "ask under an account of everybody in the table",
            account=account.name,
        )
