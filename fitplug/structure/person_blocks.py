"""Blocks that are matrices, for a person with several records in different periods or cells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from fitplug.domain import suggest_fewer_cells
from fitplug.errors import WorkloadError
from fitplug.numeric import IntArray
from fitplug.structure.matrix_blocks import MatrixStructure
from fitplug.structure.person_records import (
    PersonRecords,
    RecordSets,
    find_person_records,
    list_single_records,
)

MAX_PRODUCTS = 4_000_000
"""The most inner products of pairs of records, of which a strategy's cost is made."""


@dataclass(frozen=True, eq=False)
class PersonStructure(MatrixStructure):
    """Blocks over the dense cells, and the records that a person may have in them.

    Attributes:
        named: The differences that have dual weights; None for those of single records.
    """

    named: RecordSets | None = None

    def __str__(self) -> str:
        return f"{super().__str__()}; persons with up to {self.person.most:,} records"

    @cached_property
    def person(self) -> PersonRecords:
        """Which records a person may have."""
        return find_person_records(self, self.unit)

    @cached_property
    def sets(self) -> RecordSets:
        """The differences that have dual weights."""
        return list_single_records(self.person) if self.named is None else self.named

    @property
    def differences(self) -> int:
        return len(self.sets)

    @property
    def profile_size(self) -> int:
        return self.cells

    @property
    def remedy(self) -> str:
        return (
            "the ways in which the records of a person can lie are too many to try, so that the "
            "cost is a bound; take fewer periods, or ask fewer attributes together"
        )

    @property
    def arrays_in_files(self) -> Mapping[str, IntArray]:
        return {"records.cells": self.sets.cells, "records.labels": self.sets.labels}

    @property
    def has_room(self) -> bool:
        """Whether the products of all pairs of records can be held."""
        return self._products <= MAX_PRODUCTS

    @property
    def _products(self) -> int:
        """The number of pairs of records to tell apart."""
        return 2 ** len(self.sizes) * self.cells**2

    def check_size(self) -> None:
        super().check_size()
        # The unit's refusals come first: some of them hold for few cells, too.
        assert self.person.most > 0
        if not self.has_room:
            raise WorkloadError(
                f"persons with several records have {self._products:,} pairs of records to tell "
                f"apart, and up to {MAX_PRODUCTS:,} can be held: use fewer attributes together, or "
                + suggest_fewer_cells(self.workload.domain, self.dense)
            )
