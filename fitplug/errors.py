"""The exceptions that fitplug raises on purpose.

Their tree::

    FitplugError
    ├── InputError (also a ValueError)
    │   ├── DomainError
    │   ├── WorkloadError
    │   ├── TablesError
    │   ├── DataError
    │   ├── PlanError
    │   └── BudgetError
    ├── OverBudget
    ├── AlreadyReleased
    ├── LedgerError
    │   └── KeyTaken
    ├── SamplerError
    └── DesignError

No message quotes a row or an exact count.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class FitplugError(Exception):
    """The base class of all errors that fitplug and its adapters raise on purpose."""


class InputError(FitplugError, ValueError):
    """An argument or a file is wrong. Nothing was written or charged."""


class DomainError(InputError):
    """An attribute or a domain is invalid."""


class WorkloadError(InputError):
    """A query group, a target or an expression is invalid."""


class TablesError(InputError):
    """Exact counts are invalid, or do not fit the plan."""


class DataError(InputError):
    """A file with rows is missing or damaged, or does not fit the domain."""


class PlanError(InputError):
    """A plan file is damaged or was edited."""


class BudgetError(InputError):
    """A privacy parameter is out of range."""


class OverBudget(FitplugError):  # noqa: N818 - not an error of the caller: a refusal
    """A charge would exceed the budget. Nothing was charged.

    Attributes:
        requested: The charge, in rho of zCDP.
        remaining: The remaining budget, in rho of zCDP.
    """

    def __init__(self, message: str, *, requested: float, remaining: float) -> None:
        super().__init__(message)
        self.requested = requested
        self.remaining = remaining


class AlreadyReleased(FitplugError):  # noqa: N818 - not an error of the caller: a refusal
    """The plan was released before, and the call did not ask to release it again.

    Attributes:
        number: The number that the ledger gave to the charge for the earlier release.
    """

    def __init__(self, message: str, *, number: int) -> None:
        super().__init__(message)
        self.number = number


class LedgerError(FitplugError):
    """The ledger cannot be read or written, or its charges or its unit do not allow the request."""


class KeyTaken(LedgerError):  # noqa: N818 - as the name of a refusal
    """The key belongs to an earlier charge that this call cannot continue.

    Attributes:
        number: The number that the ledger gave to the charge with this key.
    """

    def __init__(self, message: str, *, number: int) -> None:
        super().__init__(message)
        self.number = number


class SamplerError(FitplugError):
    """The noise sampler failed its test, so privacy is not proven. Nothing was charged."""


class DesignError(FitplugError):
    """No plan with a proven cost could be designed for the workload."""


# Reasons for refusing a plan that was edited or damaged. A plan that fitplug wrote meets none.
BAD_INTEGERS = "the integer coefficients of the plan's noisy answers do not fit its queries"
LARGE_INTEGERS = "the integer coefficients of the plan's noisy answers are too large"
BAD_PROOF = "the numbers that prove the plan's lower bound do not fit its queries"

_MOST_WORDS = 30


def quote(text: str) -> str:
    """Put a name in quotes, as expressions need it; a quote inside the name is doubled.

    A name with unprintable characters is written as a Python string, on one line.
    """
    if not text.isprintable():
        return repr(text)
    quotation = '"' if "'" in text else "'"
    return quotation + text.replace(quotation, 2 * quotation) + quotation


def check_type(name: str, value: object, kind: type | tuple[type, ...], call: str) -> None:
    """Raise TypeError if an argument has the wrong class, for example if two are swapped.

    Args:
        name: The name of the argument.
        value: The argument.
        kind: The class, or several classes; the error names the first.
        call: An example of a correct call.
    """
    if not isinstance(value, kind):
        named = kind[0] if isinstance(kind, tuple) else kind
        raise TypeError(
            f"{name} must be a fitplug.{named.__name__}, not {type(value).__name__}. Call {call}."
        )


def suggest_nearest(word: str, known: Iterable[str]) -> str:
    """Suggest the known word nearest to `word`, or list the known words if none is near.

    Returns:
        A complete sentence, such as "Did you mean 'std'?" or "Known: 'std', 'moe'."
    """
    known = [str(k) for k in known]
    # A number or a date that is near another one is seldom meant by it.
    is_word = any(character.isalpha() for character in str(word))
    close = difflib.get_close_matches(str(word), known, n=1) if is_word else []
    if close:
        return f"Did you mean {quote(close[0])}?"
    if not known:
        return "There are none."
    shown = ", ".join(map(quote, known[:_MOST_WORDS]))
    more = len(known) - _MOST_WORDS
    return f"Known: {shown}" + (f" and {more} more." if more > 0 else ".")
