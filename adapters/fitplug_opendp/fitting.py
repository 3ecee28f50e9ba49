"""The noise scale that spends a given privacy loss, in closed form. Imports OpenDP."""

from __future__ import annotations

import math
from typing import Any

import opendp.prelude as dp
from opendp.context import PartialChain, _cast_measure

from fitplug.errors import BudgetError


class Fitted(PartialChain):  # type: ignore[misc]
    """A measurement that lacks its scale: OpenDP's PartialChain, without its search."""

    def fix(
        self,
        d_in: Any,
        d_out: Any,
        output_measure: Any = None,
        bounds: tuple[float, float] | None = None,
        T: Any = None,
    ) -> Any:
        """The measurement with the least scale, but for rounding, that costs at most d_out."""
        rho = _rho(d_out, output_measure)
        # rho is the plan's over the square of the scale: no search is needed.
        scale = math.sqrt(self(1.0).map(d_in) / rho)
        step = math.ulp(1.0)
        while not _fits(chain := self(scale), d_in, d_out, output_measure):
            if step > 1e-6:
                raise BudgetError(f"no scale of the noise meets a privacy loss of {d_out}")
            scale *= 1 + step
            step *= 2
        chain.param = scale
        return chain


def _fits(chain: Any, d_in: Any, d_out: Any, output_measure: Any) -> bool:
    return bool(_cast_measure(chain, output_measure, d_out).check(d_in, d_out))


def _rho(d_out: Any, measure: Any) -> float:
    """The most rho of zCDP that a loss in this measure allows, but for rounding."""
    kind = "ZeroConcentratedDivergence" if measure is None else str(measure.type)
    if kind == "ZeroConcentratedDivergence":
        rho = d_out
    elif kind == "Approximate<ZeroConcentratedDivergence>":
        rho, _ = d_out
    elif kind == "Approximate<MaxDivergence>":
        rho = _rho_at(*d_out)
    else:
        raise BudgetError(
            f"Gaussian noise has no finite loss in {measure}; "
            "give the context rho=, or epsilon= with delta="
        )
    if not 0 < rho < math.inf:
        raise BudgetError(f"a privacy loss of {d_out} must be finite and greater than zero")
    return float(rho)


def _rho_at(epsilon: float, delta: float) -> float:
    """The most rho whose loss at delta OpenDP takes for at most epsilon."""
    integer = dp.atom_domain(T="i64"), dp.absolute_distance(T="i64")

    def converted(scale: float) -> Any:
        return dp.c.make_fix_delta(
            dp.c.make_zCDP_to_approxDP(dp.m.make_gaussian(*integer, scale)), delta
        )

    scale = dp.binary_search(lambda scale: converted(scale).check(1, (epsilon, delta)), T=float)
    return float(1 / (2 * scale * scale))
