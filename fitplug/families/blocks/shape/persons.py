"""Blocks that are matrices, for a person with several records in different periods or cells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fitplug.domain import suggest_fewer_cells
from fitplug.errors import WorkloadError
from fitplug.families.base.structure import Structure
from fitplug.families.blocks.shape.matrices import MatrixStructure
from fitplug.neighbours import PersonRecords, RecordSets, list_single_records
from fitplug.numeric import IntArray
from fitplug.workload import AddRemove, Unit

MAX_SYMMETRIC = 6
"""The most symmetric attributes: products of records are kept for each set of those that differ."""

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
        return self.sets.arrays_in_file

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
        _ = self.person
        if not self.has_room:
            raise WorkloadError(
                f"persons with several records have {self._products:,} pairs of records to tell "
                f"apart, and up to {MAX_PRODUCTS:,} can be held: use fewer attributes together, or "
                + suggest_fewer_cells(self.workload.domain, self.dense)
            )


def find_person_records(structure: Structure, unit: Unit) -> PersonRecords:
    """Find which records a unit of privacy lets a person have.

    Args:
        structure: A structure of blocks that are matrices, which tells the cells of the unit's
            attribute apart, or all cells if the unit's records are distinct.
        unit: A unit with `once_per` or `distinct`.

    Returns:
        The records.

    Raises:
        WorkloadError: If the structure cannot have this unit; the message says what to ask.
    """
    if not isinstance(unit, AddRemove) or unit.is_of_records:
        raise WorkloadError(f"the unit of privacy ({unit}) keeps no records of a person apart")
    domain, dense = structure.workload.domain, structure.dense
    shape = domain.shape_of(dense)
    if unit.once_per is not None:
        if unit.once_per not in dense:
            raise WorkloadError(
                f"no query tells the values of {unit.once_per!r} apart, so records at different "
                f"values cost what records at one value do; give records alone"
            )
        axis = dense.index(unit.once_per)
        periods = np.indices(shape, dtype=np.intp)[axis].ravel()
    else:
        unasked = [name for name in domain.names if name not in structure.workload.attributes]
        if any(domain[name].size > 1 for name in unasked):
            raise WorkloadError(
                "records in distinct cells can be in one cell of the attributes that queries ask "
                f"for, since no query asks for {', '.join(unasked)}; leave these attributes out "
                "of the domain, or give records alone"
            )
        periods = np.arange(structure.cells)
    if len(structure.sizes) > MAX_SYMMETRIC:
        raise WorkloadError(
            f"a person with several records can be planned for with up to {MAX_SYMMETRIC} "
            f"attributes asked for as identity or total alone, not {len(structure.sizes)}; ask "
            "fewer attributes, or give records alone"
        )
    used = {a for attributes in structure.subsets.blocks.tolist() for a in attributes}
    sizes = tuple(n if a in used else 1 for a, n in enumerate(structure.sizes))
    return PersonRecords(min(unit.records, int(periods.max()) + 1), periods, sizes)
