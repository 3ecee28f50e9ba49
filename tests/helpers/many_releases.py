"""Many releases of one plan, for tests of their distribution."""

from __future__ import annotations

from fitplug_opendp.noise_source import NoiseSource, compute_exact_answers


def release_often(plan, tables, times, contributions=1):
    """Yield releases as `fitplug.release` draws them, after one test of the sampler."""
    source = NoiseSource.from_plan(plan, contributions)
    source.check_sampler()
    answers = compute_exact_answers(plan, tables)
    for _ in range(times):
        yield source.draw(tables, answers, None)
