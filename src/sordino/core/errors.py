"""The error tree, and the one shape every message has.

SordinoError
├── ConfigError        nothing has run; the input must change          exit code 2
├── PrivacyError       going on would break or overstate a guarantee    exit code 2
│   └── BudgetRefused  the ledger said no; nothing was released         exit code 3
│       └── BudgetExhausted  what is left does not pay for this question   exit code 3
├── BreakerOpen        releases are stopped until a person looks        exit code 4
├── VerificationError  a ledger, report or file is not what it claims   exit code 5
└── EngineError        a client or the network failed; training may go on  exit code 1
"""

from __future__ import annotations

from typing import Self


class SordinoError(Exception):
    """Base of every error that Sordino raises on purpose."""

    exit_code = 1

    @classmethod
    def about(cls, where: str, rule: str, remedy: str = "", /, **argument: object) -> Self:
        """An error in the house form `<where>: <argument>=<value> <rule>; <what to do>`.

        >>> print(ConfigError.about("clip", "must be positive", "choose e.g. 1.0", norm=-1))
        clip: norm=-1 must be positive; choose e.g. 1.0
        """
        named = " ".join(f"{name}={value!r}" for name, value in argument.items())
        body = f"{named} {rule}" if named else rule
        return cls(f"{where}: {body}" + (f"; {remedy}" if remedy else ""))


class ConfigError(SordinoError):
    """The experiment or an argument is wrong; nothing has run."""

    exit_code = 2


class PrivacyError(SordinoError):
    """Going on would break or overstate a guarantee; what it is about was not released."""

    exit_code = 2


class BudgetRefused(PrivacyError):
    """An account cannot pay for a release; it did not happen."""

    exit_code = 3


class BudgetExhausted(BudgetRefused):
    """What is left of an account does not pay for this question; a cheaper one may fit."""


class BreakerOpen(SordinoError):
    """Releases are stopped until a person has looked."""

    exit_code = 4


class VerificationError(SordinoError):
    """Evidence does not agree with itself."""

    exit_code = 5


class EngineError(SordinoError):
    """A client or its transport failed."""
