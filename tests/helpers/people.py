"""One small plan with every kind of factor, and people for it, that tests of releases share."""

from __future__ import annotations

import numpy as np

import fitplug as fp
from fitplug.testing.exports import PEOPLE as DOMAIN, plan_people as plan


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
