"""Charges and covariances as rows, against matrices by (T11) and (T12)."""

from __future__ import annotations

import numpy as np
import pytest

from fitplug.families.tree.design.charges import Charges, DepthRows
from fitplug.families.tree.design.child_covariances import KroneckerCovariances
from fitplug.families.tree.design.sibling_covariance import SiblingCovariances

b, k, r, m = 3, 4, 5, 7


def draw_covariances(rng, *shape):
    root = rng.standard_normal((*shape, r, r))
    return root @ root.swapaxes(-1, -2) + np.eye(r)


def draw_children(rng):
    u = rng.uniform(0.5, 1.5, (b, k))
    variances, profiles = rng.uniform(0.5, 1.5, (2, b, k))
    siblings = SiblingCovariances(
        np.zeros(b), u / u.sum(axis=1, keepdims=True), variances, profiles
    )
    Y = draw_covariances(rng, b)
    return KroneckerCovariances(siblings, Y, np.linalg.inv(Y))


def test_charges_are_collected_as_matrices_are():
    rng = np.random.default_rng(1)
    children, L = draw_children(rng), rng.standard_normal((m, r))
    charges = Charges(DepthRows(L), rng.uniform(0.5, 1.5, (b, k, m)))
    K = L.T @ (charges.weights[..., None] * L)
    expected = np.einsum("bk,bkij->bij", children.siblings.references**2, K)
    assert children.collect(charges).build_matrices() == pytest.approx(expected)
    traces = np.einsum("bkij,bij->bk", K, children.covariances)
    assert charges.add_traces(children.covariances) == pytest.approx(traces)


def test_covariances_are_spread_as_matrices_are():
    rng = np.random.default_rng(2)
    children, T = draw_children(rng), draw_covariances(rng, b)
    rows, X = DepthRows(rng.standard_normal((m, r))), children.siblings
    S = (X.references**2)[..., None, None] * T[:, None]
    S = S + X.variances[..., None, None] * children.covariances[:, None]
    expected = np.einsum("mi,bkij,mj->bkm", rows.L, S, rows.L)
    assert children.spread(rows.compute_variances(T), rows) == pytest.approx(expected)
