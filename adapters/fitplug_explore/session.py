"""The content of the page: targets, budgets and the outcomes of designs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

from fitplug.errors import InputError

Kind: TypeAlias = Literal["variance", "std", "moe", "factor"]

_CALLED = {
    "variance": "Variance",
    "std": "Std",
    "moe": "Margin of error",
    "factor": "Factor",
    "percent": "Percentage",
    "count": "Typical count",
}


class AlreadyExists(InputError):  # noqa: N818 - a question to the user
    """A file with this name exists, and the user has not agreed to replace it."""


class TargetError(InputError):
    """A target of the page is wrong.

    Attributes:
        group: The position of its group.
    """

    def __init__(self, message: str, group: int) -> None:
        super().__init__(message)
        self.group = group


@dataclass(frozen=True)
class Target:
    """The target of a group of queries.

    Attributes:
        kind: What `value` limits: the variance, the std or the margin of error. With "factor",
            `value` multiplies every target std of the group instead.
        value: The number.
        confidence: The confidence of a margin of error; None for the other kinds.
        simultaneous: Whether the confidence holds for all margins of error of the group
            simultaneously.
    """

    kind: Kind
    value: float
    confidence: float | None = None
    simultaneous: bool = False


@dataclass(frozen=True)
class Group:
    """A group of queries.

    Attributes:
        name: The name of the group.
        queries: The number of queries in the group.
        quantity: What the answers are: "rows" for counts, or the sum of a measure, such as "sum of
            INCOME".
        described: The group's target in the spec, as text to show.
        target: The group's target in the spec.
    """

    name: str
    queries: int
    quantity: str
    described: str
    target: Target


@dataclass(frozen=True)
class Budget:
    """The ledger's budget in rho.

    Attributes:
        total: The total budget.
        spent: The sum of all charges.
        remaining: The budget that is left.
    """

    total: float
    spent: float
    remaining: float


@dataclass(frozen=True)
class GroupOutcome:
    """The accuracy that a plan gives a group, and what the group's target costs.

    Attributes:
        allowed_std: The largest std that the targets allow.
        achieved: The standard deviations of the answers, as text to show.
        std_ratio: The largest ratio of an answer's std to its target.
        binding: The number of answers that are exactly at their target.
        price: The share of rho that the group's targets cost; None if the plan has no prices.
        saves: An estimated upper limit of the share of rho that is saved if each std of the group
            may be 10% larger; None if there is no estimate.
    """

    allowed_std: float
    achieved: str
    std_ratio: float
    binding: int
    price: float | None
    saves: float | None


@dataclass(frozen=True)
class Outcome:
    """The cost and the accuracy of a plan.

    Attributes:
        rho: The rho that a release charges, rounded up.
        epsilon: The plan's epsilon, as text to show.
        gap: A sentence that states how close rho is to the least possible rho, as proven.
        groups: The outcome of each group.
    """

    rho: float
    epsilon: str
    gap: str
    groups: tuple[GroupOutcome, ...]


class Report(Protocol):
    """A function that reports the progress of a design."""

    def __call__(self, *, share: float = 0.0, between: tuple[float, float] | None = None) -> object:
        """Report.

        Args:
            share: The share of the work that is done.
            between: Proven bounds on the least rho, from an earlier plan.
        """


@dataclass(frozen=True)
class Session:
    """The content of one page, and the functions that do its work.

    Attributes:
        name: The name of the spec file.
        suggested: An unused file name for a new spec.
        unit: The unit of privacy, in words.
        delta: The delta at which epsilon is given, as text to show.
        spend: The budget in rho that the spec spends by scaling the targets; None if the targets
            determine the cost.
        max_rho: The largest rho that the targets may cost; None if the spec sets no limit.
        groups: The groups of queries.
        read_budget: A function that reads the ledger's budget, or returns a sentence that explains
            why there is no budget.
        design: A function that designs a plan. It is pickled and runs in a separate process.
        write: A function that writes a spec with new targets to a named file, and returns the names
            of the new files. If a file exists, it raises AlreadyExists unless its last argument is
            true.
    """

    name: str
    suggested: str
    unit: str
    delta: str
    spend: float | None
    max_rho: float | None
    groups: tuple[Group, ...]
    read_budget: Callable[[], Budget | str]
    design: Callable[[Sequence[Target], Report], Outcome]
    write: Callable[[str, Sequence[Target], bool], Sequence[str]]


def read_targets(given: Any, groups: Sequence[Group]) -> tuple[Target, ...]:
    """Read the targets that the page sends, one for each group.

    A relative margin of error is a percentage of a typical count.

    Raises:
        InputError: They are not targets of these groups; a TargetError names the group.
    """
    if not isinstance(given, list) or len(given) != len(groups):
        raise InputError("The page and the spec have different groups. Load the page again.")
    return tuple(
        _read_target(one, group, at)
        for at, (one, group) in enumerate(zip(given, groups, strict=True))
    )


def _read_target(given: Any, group: Group, at: int) -> Target:
    if not isinstance(given, dict):
        raise TargetError("The target is not valid. Load the page again.", at)

    def read(key: str, called: str) -> float:
        number = given.get(key)
        if isinstance(number, bool) or not isinstance(number, (int, float)):
            raise TargetError(f"{called} is missing. Enter a number.", at)
        if not number > 0:
            raise TargetError(f"{called} must be above zero. Enter a larger number.", at)
        if math.isinf(number):
            raise TargetError(f"{called} must be finite. Enter a smaller number.", at)
        return float(number)

    kind = given.get("kind")
    if (kind == "factor") != (group.target.kind == "factor"):
        raise TargetError("This group cannot have this kind of target. Load the page again.", at)
    if kind in ("variance", "std", "factor"):
        return Target(kind, read("value", _CALLED[kind]))
    if kind not in ("moe", "relative"):
        raise TargetError("The kind of this target is not valid. Load the page again.", at)
    if kind == "moe":
        value = read("value", _CALLED["moe"])
    else:
        value = read("percent", _CALLED["percent"]) * read("count", _CALLED["count"]) / 100
    percent = read("confidence", "Confidence")
    if not percent < 100:
        raise TargetError("Confidence must be below 100%. Enter a smaller number.", at)
    confidence = float(f"{percent / 100:.12g}")  # 0.9, not 0.9000000000000001
    return Target("moe", value, confidence, group.target.simultaneous)
