"""Charges and covariances as rows and vectors, against matrices by (T12) and (T16)."""

from __future__ import annotations

import numpy as np
import pytest

from fitplug.families.tree.design.charges import Charges, DepthRows
from fitplug.families.tree.design.child_covariances import (
    KroneckerCovariances,
    NodeCovariances,
    SplitCovariances,
)
from fitplug.families.tree.design.sibling_covariance import SiblingCovariances

b, k, r, m = 3, 4, 5, 7
E = np.array([1.0, 1.0, 0.0, 1.0, 1.0])


def draw_covariances(rng, *shape):
    root = rng.standard_normal((*shape, r, r))
    return root @ root.swapaxes(-1, -2) + np.eye(r)


def draw_siblings(rng):
    u = rng.uniform(0.5, 1.5, (b, k))
    variances, profiles = rng.uniform(0.5, 1.5, (2, b, k))
    return SiblingCovariances(np.zeros(b), u / u.sum(axis=1, keepdims=True), variances, profiles)


def draw_split(rng):
    Y = draw_covariances(rng, b)
    split = SplitCovariances.split(KroneckerCovariances(draw_siblings(rng), Y, np.linalg.inv(Y)), E)
    other = draw_siblings(rng)
    w = SiblingCovariances(other.multipliers, other.references, other.variances, other.profiles)
    return SplitCovariances(
        E, split.siblings, w, split.directions, split.covariances, split.precisions, np.zeros(b)
    )


def build_references(split):
    """U_j, shape (b, k, r, r)."""
    along = split.directions[:, :, None] * E
    u, w = (x.references[:, :, None, None] for x in (split.siblings, split.totals))
    return u * (np.eye(r) - along)[:, None] + w * along[:, None]


def draw_charges(rng, mixed):
    rows = DepthRows(rng.standard_normal((m, r)))
    return Charges(
        rows,
        rng.uniform(0.5, 1.5, (b, k, m)),
        rng.standard_normal((b, k, r)) if mixed else None,
        E,
    )


def build_each(charges):
    """K of each child, shape (b, k, r, r)."""
    K = charges.rows.L.T @ (charges.weights[..., None] * charges.rows.L)
    if charges.mixed is not None:
        outer = charges.mixed[..., None] * E
        K = K + outer + outer.swapaxes(-1, -2)
    return K


@pytest.mark.parametrize("mixed", [False, True])
def test_charges_are_collected_as_matrices_are(mixed):
    rng = np.random.default_rng(0)
    split, charges = draw_split(rng), draw_charges(rng, mixed)
    U = build_references(split)
    expected = (U.swapaxes(-1, -2) @ build_each(charges) @ U).sum(axis=1)
    assert split.collect(charges).build_matrices() == pytest.approx(expected)


def test_charges_of_one_reference_are_collected_as_matrices_are():
    rng = np.random.default_rng(1)
    charges, Y = draw_charges(rng, False), draw_covariances(rng, b)
    given = KroneckerCovariances(draw_siblings(rng), Y, np.linalg.inv(Y))
    squares = given.siblings.references**2
    expected = np.einsum("bk,bkij->bij", squares, build_each(charges))
    assert given.collect(charges).build_matrices() == pytest.approx(expected)
    traces = np.einsum("bkij,bij->bk", build_each(charges), Y)
    assert charges.add_traces(Y) == pytest.approx(traces)


def test_covariances_are_spread_as_matrices_are():
    rng = np.random.default_rng(2)
    split, T = draw_split(rng), draw_covariances(rng, b)
    rows = DepthRows(rng.standard_normal((m, r)))
    U, f = build_references(split), split.directions
    S = U @ T[:, None] @ U.swapaxes(-1, -2)
    S = S + split.siblings.variances[..., None, None] * split.covariances[:, None]
    S = S + split.totals.variances[..., None, None] * (f[:, :, None] * f[:, None])[:, None]
    spread = split.spread(NodeCovariances(rows.compute_variances(T), T @ E), rows)
    expected = np.einsum("mi,bkij,mj->bkm", rows.L, S, rows.L)
    assert spread.variances == pytest.approx(expected)
    assert spread.towards == pytest.approx(S @ E)
