"""Shared by all tests: one Hypothesis profile, and nothing of BLAS threads in small problems."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile(
    "fitplug",
    derandomize=True,
    deadline=None,
    max_examples=50,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("fitplug")
