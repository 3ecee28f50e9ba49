"""Coverage: noisy numbers of the records outside the domain, at no further cost.

A record whose value of an attribute is in none of its cells, such as a missing age, is not counted.
So adding a record changes either the counts of the tables or the counts below, never both, and
answers about the latter cost nothing more as long as no record changes them by more than the
plan's sensitivity (docs/theory/coverage.md). They get noise of the same sigma.

For a record, let u_a be 1 if its value of attribute a is in no cell, and u be 1 if it is in no
table. With d attributes, the answers are

    m (2 u_a - u)  for each attribute a,      n u,

A record outside the domain changes them by d m^2 + n^2 in squared norm: each 2 u_a - u is 1 or
-1. With one attribute, u_a is u, and the only answer is n u.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fitplug.domain import list_names_without_other
from fitplug.errors import BudgetError
from fitplug.families import SATURATION, IntegerStrategy, Structure
from fitplug.numeric import UNIT_ROUNDOFF, FloatArray, IntArray
from fitplug.workload import Unit, Workload, allows_any_rows

_EQUAL_UP_TO = 9
"""Up to this many attributes, the factors give all estimates the same variance."""


@dataclass(frozen=True)
class Coverage:
    """The integer answers about records outside the domain.

    Attributes:
        names: The d attributes that leave records out, in the domain's order, at least one.
        attribute_factor: m; 0 if d is 1.
        any_factor: n.
    """

    names: tuple[str, ...]
    attribute_factor: int
    any_factor: int

    @classmethod
    def from_strategy(cls, strategy: IntegerStrategy[Structure]) -> Coverage:
        """Choose the factors for which a record outside the domain costs as much as one inside.

        Raises:
            BudgetError: The unit of privacy is not k records anywhere, every record is in the
                tables, or the strategy's integers are too small.
        """
        structure = strategy.structure
        names = check_coverage(structure.workload, structure.unit)
        # A person of k records costs k^2 times as much, whether they are in the tables or not.
        most, d = strategy.sensitivity_squared // structure.changes**2, len(names)
        if d == 1:
            m, n = 0, math.isqrt(most)
        else:
            share = 3 / (d + 3) if d <= _EQUAL_UP_TO else 1 / (1 + math.sqrt(d))
            n = math.isqrt(int(share * most))
            m = math.isqrt((most - n**2) // d)
        chosen = cls(names, m, n)
        if n < 1 or (d > 1 and m < 1) or chosen.sensitivity_squared > most:
            raise BudgetError(
                "this plan leaves no rho for coverage. Design the plan with a smaller tolerance."
            )
        return chosen

    @property
    def size(self) -> int:
        """The number of answers."""
        return 1 if len(self.names) == 1 else len(self.names) + 1

    @property
    def sensitivity_squared(self) -> int:
        """The squared change of the answers by a record outside the domain: d m^2 + n^2."""
        return len(self.names) * self.attribute_factor**2 + self.any_factor**2

    def answer_exactly(self, by_attribute: Sequence[int], in_no_table: int) -> IntArray:
        """Compute the exact answers, clamped. They are confidential.

        Args:
            by_attribute: For each attribute, the number of records whose value is in no cell.
            in_no_table: The number of records outside the domain.

        Returns:
            The answers, shape (size,).
        """
        m, n = self.attribute_factor, self.any_factor
        answers = [m * (2 * count - in_no_table) for count in by_attribute] if m else []
        answers.append(n * in_no_table)
        clamped = [max(-SATURATION, min(answer, SATURATION)) for answer in answers]
        return np.array(clamped, dtype=np.int64)

    def estimate(self, answers: IntArray) -> FloatArray:
        """Estimate the numbers of records without bias.

        Args:
            answers: The noisy answers, shape (size,).

        Returns:
            The number for each attribute, then of all records outside, shape (d + 1,).
        """
        in_no_table = float(answers[-1]) / self.any_factor
        if not self.attribute_factor:
            return np.array([in_no_table, in_no_table])
        signed = answers[:-1] / self.attribute_factor
        return np.append((signed + in_no_table) / 2, in_no_table)

    def upper_variances(self, noise_std: float) -> FloatArray:
        """Bound the variances of the estimates from above, in squared records, shape (d + 1,)."""
        m, n = float(self.attribute_factor), float(self.any_factor)
        in_no_table = noise_std**2 / n**2
        by_attribute = (noise_std**2 / m**2 + in_no_table) / 4 if m else in_no_table
        variances = np.append(np.full(len(self.names), by_attribute), in_no_table)
        return variances * (1 + 16 * UNIT_ROUNDOFF)


def check_coverage(workload: Workload, unit: Unit) -> tuple[str, ...]:
    """Check that plans of a workload can have coverage in a unit of privacy.

    Returns:
        The attributes that leave records out of the tables, in the domain's order.

    Raises:
        BudgetError: They cannot.
    """
    names = list_names_without_other(workload.domain, workload.attributes)
    if not names:
        raise BudgetError("every value is in the domain. Remove the setting 'coverage'.")
    if not allows_any_rows(unit):
        raise BudgetError(
            f"coverage cannot be combined with the unit of privacy {unit!r}. Remove the setting "
            "'coverage'."
        )
    return names
