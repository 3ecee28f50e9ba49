"""One small plan with every kind of factor, and people for it, that tests of releases share."""

from __future__ import annotations

import functools

import numpy as np

import fitplug as fp

DOMAIN = fp.Domain(
    {
        "sex": ["1", "2"],
        "age": fp.Integers(0, 5),
        "income": fp.Bins([0, 10, 50]),
        "place": fp.Hierarchy(
            ["region", "city"], [("north", "ulm"), ("north", "kiel"), ("south", "rom")]
        ),
    }
)


@functools.cache
def plan(records: int = 1) -> fp.Plan:
    """Identity, prefix, ranges, all ranges, level, matrix, total, and targets of every kind."""
    groups = [
        fp.queries({"sex": "identity", "age": "prefix"}, std=5.0, name="pyramid"),
        fp.queries(
            {"age": fp.ranges([(2, 5), (4, 5)])}, moe=8.0, confidence=0.9, name="voting age"
        ),
        fp.queries({"place": "region", "sex": "total"}, std=4.0, name="regions"),
        fp.marginal("place", "income", moe=20.0, confidence=0.9, simultaneous=True, name="cities"),
        fp.queries({"age": "all_ranges"}, std=9.0, name="spans"),
        fp.queries({"sex": [[1.0, -1.0], [0.5, 0.25]]}, std=3.0, name="weighted"),
        fp.total(std=3.0),
    ]
    return fp.design(fp.Workload(DOMAIN, groups), unit=fp.AddRemove(records), tolerance=1e-2)


def histogram() -> np.ndarray:
    return np.random.default_rng(7).poisson(4.0, DOMAIN.shape)


def tables(x: np.ndarray) -> fp.Tables:
    return fp.Tables(DOMAIN, {DOMAIN.names: x})


def release(noise: float = 0.0, seed: int = 0) -> fp.Release:
    """The plan's answers with as much noise, in stds, of another kind than what is released: the
    same on every machine.
    """
    designed = plan()
    exact = designed.strategy.answer_exactly(tables(histogram()).marginal)
    drawn = np.random.default_rng(seed).normal(size=len(exact)) * designed.noise_std * noise
    answers = exact + np.rint(drawn).astype(np.int64)
    return fp.Release(plan=designed, answers=answers, rho=designed.rho)
