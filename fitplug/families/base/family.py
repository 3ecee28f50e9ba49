"""Registered structures: for each, what its strategies are and how its lower bound is proven.

`fitplug.families` registers them all in one table when it is imported. How the optimum of each is
found stands apart, in `fitplug.families.designs`, since what proves knows no solver.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from fitplug.families.base.certifier import Certifier
from fitplug.families.base.strategy_form import StrategyForm
from fitplug.families.base.structure import Structure


class Family(NamedTuple):
    """What belongs to one structure.

    Attributes:
        form: What its strategies are.
        certifier: How a lower bound on its cost is proven.
    """

    form: StrategyForm[Any]
    certifier: Certifier[Any]


FAMILIES: dict[type[Structure], Family] = {}
"""The families by structure, filled by `fitplug.families.registry`."""


def find_form(structure: Structure) -> StrategyForm[Any]:
    """Find the form of a structure's strategies."""
    return FAMILIES[type(structure)].form


def find_certifier(structure: Structure) -> Certifier[Any]:
    """Find the certifier of a structure."""
    return FAMILIES[type(structure)].certifier
