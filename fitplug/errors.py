"""Everything fitplug raises on purpose.

FitplugError
├── InputError (also a ValueError)   what was given is wrong; nothing was written or charged
│   ├── DomainError                  the domain itself
│   ├── WorkloadError                queries and targets
│   ├── TablesError                  exact counts that are not counts, or do not fit the plan
│   ├── DataError                    files of records: missing, damaged, of another schema
│   ├── PlanError                    a plan file that is damaged or was edited
│   └── BudgetError                  a privacy parameter out of range
├── OverBudget                       refused: the budget left does not allow this charge
├── AlreadyReleased                  refused: a second draw of a plan that was not asked for
├── LedgerError                      the ledger cannot be opened, or says something else
│   └── KeyTaken                     the key is that of a charge for something else
└── DesignError                      no plan could be certified for this workload

No message carries anything that rows or exact counts hold.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class FitplugError(Exception):
    """Base of all errors raised by fitplug and its adapters."""


class InputError(FitplugError, ValueError):
    """What was given is wrong."""


class DomainError(InputError):
    """An attribute or a domain is not well formed."""


class WorkloadError(InputError):
    """A query group or its targets are not well formed."""


class TablesError(InputError):
    """Tables of counts are malformed or do not match what a plan needs."""


class DataError(InputError):
    """Files of records are missing, damaged or of another schema than the domain."""


class PlanError(InputError):
    """A plan file is damaged or was edited."""


class BudgetError(InputError):
    """A privacy parameter is out of range."""


class OverBudget(FitplugError):  # noqa: N818 - not an error of the caller: a refusal
    """A charge would exceed the budget.

    Attributes: `requested` and `remaining`, both rho of zCDP.
    """

    def __init__(self, message: str, *, requested: float, remaining: float) -> None:
        super().__init__(message)
        self.requested = requested
        self.remaining = remaining


class AlreadyReleased(FitplugError):  # noqa: N818 - not an error of the caller: a refusal
    """A plan was released before, and another draw of it was not asked for.

    Attribute: `number`, of the ledger's charge for the earlier release.
    """

    def __init__(self, message: str, *, number: int) -> None:
        super().__init__(message)
        self.number = number


class LedgerError(FitplugError):
    """The ledger cannot be used."""


class KeyTaken(LedgerError):  # noqa: N818 - as the name of a refusal
    """A key is that of a charge for another plan or amount, or of one that cannot be retried.

    Attribute: `number`, of the ledger's charge that has the key.
    """

    def __init__(self, message: str, *, number: int) -> None:
        super().__init__(message)
        self.number = number


class DesignError(FitplugError):
    """No certified plan was found."""


_MOST_WORDS = 30


def quote(text: str) -> str:
    """A name in quotes, as expressions take it: a quote within quotes is doubled. A name that does
    not print is shown as Python writes it, on one line.
    """
    if not text.isprintable():
        return repr(text)
    mark = '"' if "'" in text else "'"
    return mark + text.replace(mark, 2 * mark) + mark


def suggest_nearest(word: str, known: Iterable[str]) -> str:
    """A hint naming the known word nearest to `word`, or the known words when none is near."""
    known = [str(k) for k in known]
    close = difflib.get_close_matches(str(word), known, n=1)
    if close:
        return f"did you mean {quote(close[0])}?"
    shown = ", ".join(map(quote, known[:_MOST_WORDS])) if known else "none"
    more = len(known) - _MOST_WORDS
    return f"known: {shown}" + (f" and {more} more" if more > 0 else "")
