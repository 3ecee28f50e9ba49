"""Every structure has its implementation in each room, and each knows what the others say."""

from __future__ import annotations

import pytest

import fitplug as fp
from fitplug.mechanism import dispatch
from fitplug.optimizer import drafts
from fitplug.proof import certificate
from fitplug.structure import (
    ChainStructure,
    MatrixStructure,
    ResidualStructure,
    ScalarStructure,
    Structure,
    analyse_structure,
)
from tests.helpers.plans import MIXED, SPLIT_APART


def test_every_structure_is_registered_in_every_room() -> None:
    structures = {MatrixStructure, ScalarStructure, ResidualStructure, ChainStructure}
    assert set(Structure.__subclasses__()) == structures
    assert set(dispatch._FORMS) == structures
    assert set(certificate._CERTIFIERS) == structures
    assert set(drafts._DRAFTERS) == structures


@pytest.mark.parametrize(
    ("workload", "family", "kind"),
    [
        (MIXED["pyramid"], None, MatrixStructure),
        (MIXED["marginals"], None, ScalarStructure),
        (SPLIT_APART["prefixes"], None, MatrixStructure),
        (SPLIT_APART["prefixes"], True, ResidualStructure),
    ],
)
def test_the_structure_is_chosen_once(workload, family, kind) -> None:
    structure = analyse_structure(workload(), family=family)
    assert type(structure) is kind
    assert structure.holds_optimum == (kind is not ResidualStructure)
    assert bool(structure.remedy) == (kind is ResidualStructure)
    # What a plan file says of the structure finds it again.
    named = structure.names_in_files
    again = analyse_structure(workload(), named["dense"], family=bool(named["ordered"]))
    assert type(again) is kind
    assert again.names_in_files == named


def test_one_cell_is_what_blocks_of_numbers_are_over() -> None:
    for workload, family in ((MIXED["marginals"], None), (SPLIT_APART["mixed"], True)):
        structure = analyse_structure(workload(), family=family)
        assert structure.cells == structure.differences == 1
        assert structure.build_block_matrix(0).tolist() == [[1.0]]


def test_a_design_of_each_structure_is_verified() -> None:
    for workload in (MIXED["pyramid"], MIXED["marginals"]):
        fp.design(workload()).verify()
