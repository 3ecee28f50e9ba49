"""The noise scale that spends a given privacy loss, in closed form.

Importing this module imports OpenDP.
"""

from __future__ import annotations

import math
from typing import Any

import opendp.prelude as dp
from opendp.context import PartialChain

from fitplug.errors import BudgetError
from fitplug_opendp._compat import cast_measure

_STEP_LIMIT = 1e-6
"""The largest relative step by which a scale is raised to compensate for rounding."""


class UnscaledMeasurement(PartialChain):  # type: ignore[misc]
    """A measurement that lacks only its scale: OpenDP's PartialChain, without OpenDP's search."""

    def fix(
        self,
        d_in: Any,
        d_out: Any,
        output_measure: Any = None,
        bounds: tuple[float, float] | None = None,
        T: Any = None,
    ) -> Any:
        """Return the measurement with the least scale, up to rounding, that costs at most d_out.

        Args:
            d_in: The largest distance between neighbouring inputs.
            d_out: The privacy loss that may be spent.
            output_measure: The measure of d_out; None for zCDP.
            bounds: OpenDP's bounds of a search, which are not used.
            T: OpenDP's type of the scale, which is always float.

        Returns:
            The measurement, whose attribute `param` is its scale.

        Raises:
            BudgetError: The loss is not positive and finite, or no Gaussian noise has such a loss.
        """
        rho = _find_rho(d_out, output_measure)
        # The cost is that at scale 1 divided by the square of the scale, so no search is needed.
        scale = math.sqrt(self(1.0).map(d_in) / rho)
        step = math.ulp(1.0)
        while not _is_within_loss(chain := self(scale), d_in, d_out, output_measure):
            if step > _STEP_LIMIT:
                raise BudgetError(
                    f"no amount of noise gives a privacy loss of at most {d_out}. Allow a larger "
                    "loss."
                )
            scale *= 1 + step
            step *= 2
        chain.param = scale
        return chain


def _is_within_loss(chain: Any, d_in: Any, d_out: Any, output_measure: Any) -> bool:
    """Return whether OpenDP accepts the loss of a measurement as at most d_out."""
    return bool(cast_measure(chain, output_measure, d_out).check(d_in, d_out))


def _find_rho(d_out: Any, measure: Any) -> float:
    """Return the largest rho of zCDP, up to rounding, within a loss in this measure."""
    kind = "ZeroConcentratedDivergence" if measure is None else str(measure.type)
    if kind == "ZeroConcentratedDivergence":
        rho = d_out
    elif kind == "Approximate<ZeroConcentratedDivergence>":
        rho, _ = d_out
    elif kind == "Approximate<MaxDivergence>":
        rho = _find_rho_at(*d_out)
    else:
        raise BudgetError(
            f"Gaussian noise has infinite loss in {measure}. Give the context rho=, or "
            "epsilon= and delta=."
        )
    if not 0 < rho < math.inf:
        raise BudgetError(f"the privacy loss {d_out} must be finite and greater than 0")
    return float(rho)


def _find_rho_at(epsilon: float, delta: float) -> float:
    """Return the largest rho whose loss at delta OpenDP accepts as at most epsilon."""
    integer = dp.atom_domain(T="i64"), dp.absolute_distance(T="i64")

    def make_approximate(scale: float) -> Any:
        return dp.c.make_fix_delta(
            dp.c.make_zCDP_to_approxDP(dp.m.make_gaussian(*integer, scale)), delta
        )

    scale = dp.binary_search(
        lambda scale: make_approximate(scale).check(1, (epsilon, delta)), T=float
    )
    return float(1 / (2 * scale * scale))
