"""The certificate of persons with several records; see `person_bound`."""

from __future__ import annotations

from collections.abc import Iterator

from fitplug.certify import LowerBoundAt, Tier, TierClaims, scale_weights
from fitplug.families.base.family import Duals
from fitplug.families.base.objective import Objective
from fitplug.families.blocks.certificate.blocks import MatrixCertifier
from fitplug.families.blocks.certificate.person_bound import lower_person_cost
from fitplug.families.blocks.shape.matrices import MatrixStructure
from fitplug.families.blocks.shape.persons import PersonStructure
from fitplug.numeric import UNIT_ROUNDOFF, FloatArray, gamma


class PersonCertifier(MatrixCertifier):
    """The certificate of `PersonStructure`."""

    takes_objectives = False

    def lower_cost(
        self, structure: MatrixStructure, objective: Objective, scale: float, duals: Duals
    ) -> float:
        assert isinstance(structure, PersonStructure)
        q: FloatArray = scale_weights("q", duals.q, structure.rows)
        return lower_person_cost(
            structure,
            structure.person,
            structure.sets,
            duals.p,
            q / (scale * structure.targets),
            float(q.sum()) * (1 + gamma(len(q))),
        )

    def certify_tiers(self, claims: TierClaims, lower_bound_at: LowerBoundAt) -> Iterator[Tier]:
        """Certify one tier: the profile is not refined."""
        level = float(claims.profile.max())
        cells = int((claims.tiers.of_cell >= 0).sum())
        yield Tier(cells, level, claims.lower_bound**2 * (1 - 4 * UNIT_ROUNDOFF))
