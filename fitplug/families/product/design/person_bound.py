"""The bound of persons in equal periods, for products: from the weights of a descent, by ascent."""

from __future__ import annotations

import numpy as np

from fitplug.families.base.family import Duals
from fitplug.families.base.objective import Objective
from fitplug.families.base.period_design import choose_kinds
from fitplug.families.product.certificate.product_duals import ProductDuals
from fitplug.families.product.certificate.products import ProductPersonCertifier, pack_duals
from fitplug.families.product.design.bound_ascent import ascend_duals, fit_product_duals
from fitplug.families.product.design.members import FamilyMember
from fitplug.families.product.shape.products import ProductPersonStructure
from fitplug.numeric import FloatArray
from fitplug.solve import mix_with_uniform

_MIXING = 0.05
"""The share of equal weights of groups at the start: groups without weight gain it slowly."""


def find_person_duals(
    structure: ProductPersonStructure, objective: Objective, member: FamilyMember
) -> Duals:
    """Find weights of one period and of kinds of persons with a high bound.

    Args:
        structure: The structure.
        objective: The objective.
        member: The member of the family whose weights are the initial ones.
    """
    certifier, periods, reduced = ProductPersonCertifier(), structure.periods, structure.reduced
    start = _reduce(structure, fit_product_duals(member.batched, member.weights))
    kinds = choose_kinds(certifier, structure, pack_duals(start))
    norms = periods.list_norms(structure.workload, kinds)
    duals = pack_duals(ascend_duals(reduced.batched, start, norms))
    kinds = choose_kinds(certifier, structure, duals)
    return duals._replace(p=np.append(duals.p, kinds))


def _reduce(structure: ProductPersonStructure, duals: ProductDuals) -> ProductDuals:
    """Reduce weights to one period."""
    reduced, batched = structure.reduced.batched, structure.batched
    m = batched.attributes.index(structure.periods.name)
    kept = [a for a in range(len(batched.attributes)) if a != m]
    of_group = {
        (int(g), batched.attributes[a]): int(f)
        for batch in batched.batches
        for g, attributes, factors in zip(
            batch.groups, batch.attributes, batch.factors, strict=True
        )
        for a, f in zip(attributes, factors, strict=True)
    }
    y: list[FloatArray] = [np.empty(0)] * len(reduced.factors)
    for batch in reduced.batches:
        for g, attributes, factors in zip(
            batch.groups, batch.attributes, batch.factors, strict=True
        ):
            for a, f in zip(attributes, factors, strict=True):
                y[f] = duals.y[of_group[int(g), reduced.attributes[a]]]
    # The targets of sums over the periods are divided by their number.
    counting = structure.periods.find_counting(structure.workload)
    w = duals.w / np.where(counting, structure.periods.n, 1)
    w = mix_with_uniform(w / w.sum(), _MIXING)
    p = tuple(duals.p[a] for a in kept)
    return ProductDuals(p, tuple(y), w, 1, 1, duals.tilt)
