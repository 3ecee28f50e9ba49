"""A plan beside OpenDP's own queries, under one privacy filter. Run: python survey.py"""

from __future__ import annotations

import numpy as np
import opendp.prelude as dp
import polars as pl

import fitplug as fp
import fitplug_opendp as fpo

dp.enable_features("contrib", "honest-but-curious")
fpo.register()

# 20,000 made-up people. The domain is public: it is not read from them.
rng = np.random.default_rng(20261121)
people = pl.LazyFrame(
    {
        "sex": rng.choice(["f", "m"], 20_000),
        "age": rng.integers(0, 96, 20_000),
        "income": rng.lognormal(10, 1, 20_000).astype(np.int64),
    }
)
domain = fp.Domain({"sex": ["f", "m"], "age": fp.Integers(0, 95)})

# How accurate it must be: everyone up to each age, by sex, within 40 nine times in ten.
pyramid = fp.queries({"sex": "identity", "age": "prefix"}, moe=40.0, name="pyramid")
plan = fp.design(fp.Workload(domain, [pyramid, fp.total(std=10.0)]), tolerance=1e-3)
print(f"the plan costs rho = {plan.rho:.4f}, at most {plan.gap:.1e} above the least possible")

# One budget for everything that is ever asked about these people.
context = dp.Context.compositor(
    data=people,
    privacy_unit=dp.unit_of(contributions=1),
    privacy_loss=dp.loss_of(rho=0.035),
    margins=[dp.polars.Margin(by=(), max_length=1_000_000)],
)

# OpenDP's own query first.
income = pl.col("income").fill_null(0).dp.sum(bounds=(0, 200_000))
total = context.query(rho=0.02).select(income).release().collect().item()
print(f"income of all, each at most 200,000: about {total / 1e6:,.0f} million")

# Then the plan, at its own cost: its targets are met as they stand.
measurement = fpo.as_query(context.query()).fitness_for_use(plan, scale=1.0).resolve()
fpo.preflight(context, measurement)
release = context(measurement)
low, high = release.interval("pyramid", confidence=0.90)
print(f"women under 18: {low[0, 17]:,.0f} to {high[0, 17]:,.0f}")

# Then the same plan for the well-off alone, with whatever noise the rest of the budget buys.
left = 0.99 * context.remaining_privacy_loss()
well_off = fpo.as_query(context.query(rho=left).filter(pl.col("income") > 100_000))
again = context(well_off.fitness_for_use(plan).resolve())
std = float(np.sqrt(again.variances["total"]).item())
print(f"people over 100,000: {again.estimates['total'].item():,.0f} with std {std:.0f}")

# What no longer fits is refused before the filter hears of it, which it would not survive.
try:
    fpo.preflight(context, measurement)
except fp.OverBudget as refused:
    print(f"once more: {refused}")
print(f"spent: rho = {context.current_privacy_loss():.4f} of 0.035")
