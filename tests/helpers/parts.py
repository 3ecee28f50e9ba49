"""Answers and estimates in parts, put together, and compared with what the matrices give."""

from __future__ import annotations

import numpy as np

from fitplug.families import PartedStrategy, build_dense_strategy


def reader(strategy, x):
    """Reads marginals of counts x over the workload's attributes."""
    names = strategy.structure.workload.attributes

    def read(asked):
        rest = tuple(i for i, name in enumerate(names) if name not in asked)
        kept = [name for name in names if name in asked]
        return np.asarray(x.sum(axis=rest)).transpose([kept.index(name) for name in asked])

    return read


def answer_in_parts(parted: PartedStrategy, read):
    """The answers of all parts, in their order."""
    pieces = {}
    for s, slab in enumerate(parted.slabs):
        counts = np.asarray(read(slab.names))[slab.index]
        for part, piece in parted.split_counts(s, counts).items():
            assert piece.dtype == np.int64
            assert piece.ndim == 1
            pieces.setdefault(part, {})[s] = piece
    released_size = parted.strategy.released_size
    joined = np.zeros(released_size, dtype=np.int64)
    times = np.zeros(released_size, dtype=np.int64)
    for part, size in enumerate(parted.sizes.tolist()):
        assert sorted(pieces[part]) == list(parted.list_slabs(part))
        answers = parted.answer_part(part, pieces[part])
        assert answers.shape == (size,)
        assert answers.dtype == np.int64
        joined[parted.place(part)] = answers
        times[parted.place(part)] += 1
    assert (times == 1).all()
    assert parted.sizes[: parted.noisy_parts].sum() == parted.strategy.size
    assert parted.sizes.sum() == released_size
    return joined


def estimate_in_parts(parted: PartedStrategy, noisy):
    """The estimates of all outputs, by group."""
    pieces = {}
    for part in range(len(parted.sizes)):
        for output, piece in parted.split_answers(part, noisy[parted.place(part)]).items():
            assert piece.ndim == 1
            assert piece.dtype in (np.int64, np.float64)
            pieces.setdefault(output, {})[part] = piece
    groups = parted.structure.workload.groups
    by_group = {group.name: np.full(group.shape, np.nan) for group in groups}
    for o, output in enumerate(parted.outputs):
        assert sorted(pieces[o]) == list(parted.list_parts(o))
        estimates = parted.estimate(o, pieces[o])
        assert estimates.shape == output.shape
        assert np.isnan(by_group[output.group][output.index]).all()
        by_group[output.group][output.index] = estimates
    return by_group


def list_totals(strategy, x):
    """The public totals of counts x, as Python integers."""
    structure = strategy.structure
    if structure.public_attributes is None:
        return []
    names = structure.workload.attributes
    rest = tuple(i for i, name in enumerate(names) if name not in structure.public_attributes)
    return np.asarray(x.astype(object).sum(axis=rest)).ravel().tolist()


def check_parts(parted, x, rng, matrix=None, rtol=1e-11):
    """Compare answers, estimates and variances in parts with what the matrices give.

    Args:
        parted: The strategy in parts.
        x: Counts over the workload's attributes.
        rng: Draws the noise.
        matrix: A, integers; that which the strategy writes out if this is None.
        rtol: How far estimates may be from those of one chunk, relatively.
    """
    strategy = parted.strategy
    read, size = reader(strategy, x), strategy.size
    A = build_dense_strategy(strategy).astype(np.int64) if matrix is None else matrix
    exact = [*(A.astype(object) @ x.ravel().astype(object)), *list_totals(strategy, x)]
    clamped = [min(max(int(a), -(2**62)), 2**62) for a in exact]
    answers = strategy.answer_exactly(read)
    assert answers.tolist() == clamped
    assert answer_in_parts(parted, read).tolist() == clamped
    if exact == clamped and np.abs(x).max() < 2**20:
        check_truth(strategy, strategy.make_estimates(answers), x)
    noisy = answers.copy()
    noisy[:size] = np.clip(noisy[:size], -(2**40), 2**40) + rng.integers(-100, 100, size)
    expected = strategy.make_estimates(noisy)
    for name, found in estimate_in_parts(parted, noisy).items():
        scale = np.abs(expected[name]).max() + np.abs(noisy).max()
        np.testing.assert_allclose(found, expected[name], rtol=rtol, atol=rtol * scale)
        if parted.noisy_parts == 1:
            np.testing.assert_array_equal(found, expected[name])


def check_truth(strategy, estimates, x):
    """Compare the estimates of exact answers with what the queries ask of counts x."""
    workload = strategy.structure.workload
    truth = workload.matrix() @ x.ravel()
    found = np.concatenate([estimates[name].ravel() for name in workload.names])
    scale = np.abs(workload.matrix()) @ np.abs(x).ravel()
    np.testing.assert_allclose(found, truth, rtol=0, atol=1e-9 * scale.max() + 1e-9)
