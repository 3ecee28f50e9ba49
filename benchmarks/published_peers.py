"""The workloads of `published.py`, and the authors' code on them.

The peers run under an interpreter of their own, which need not have fitplug: here only NumPy is
imported before a case asks for more. All privacy costs are 1, so that variances compare.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt
from cases import Figures

Matrix = npt.NDArray[np.float64]

DATA = {
    "CPS": ((50, 100, 7, 4, 2), 2),
    "Adult": ((100, 100, 100, 99, 85, 42, 16, 15, 9, 7, 6, 5, 2, 2), 5),
    "Loans": ((101, 101, 101, 101, 3, 8, 36, 6, 51, 4, 5, 15), 4),
}
"""The sizes of the attributes of three data sets, the numerical ones first, and how many these are:
`DATASETS` in QuerySmasher's `exp/exp_utils.py`."""

KINDS = ("marginal", "prefix", "range", "circular", "affine", "distance", "random")
"""The kinds of queries of QuerySmasher's table 3, `exp/paper_2way_nd.py`."""

LARGEST_MATRIX = 400  # cells of the largest domain without structure on which HDMM runs here
MOST_VARIANCES = 4_000  # queries whose variances are computed one by one
BANDS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 52)  # bandwidths that are tried for BISR


@dataclass(frozen=True)
class Block:
    """The queries of one table: a matrix for each attribute, or one (queries, cells) for all."""

    attributes: tuple[int, ...]
    factors: tuple[Matrix, ...]

    @property
    def is_product(self) -> bool:
        return len(self.factors) == len(self.attributes)

    @property
    def size(self) -> int:
        return math.prod(len(factor) for factor in self.factors)

    def expand(self) -> Matrix:
        """Return the matrix of all queries over the cells of the block's attributes."""
        return reduce(np.kron, self.factors)


@dataclass(frozen=True)
class Queries:
    """A domain's sizes and its blocks of queries."""

    sizes: tuple[int, ...]
    blocks: tuple[Block, ...]

    @property
    def size(self) -> int:
        return sum(block.size for block in self.blocks)

    @property
    def is_product(self) -> bool:
        return all(block.is_product for block in self.blocks)


def build_queries(name: str, *words: Any) -> Queries:
    """Build a workload by its name: `data`, `pairs` or `mixed`, and what each takes."""
    return {"data": build_data, "pairs": build_pairs, "mixed": build_mixed}[name](*words)


def build_data(kind: str, data: str, least: int, most: int) -> Queries:
    """Build tables of `least` to `most` attributes: numerical ones by prefixes, or by cells."""
    sizes, numerical = DATA[data]
    factors = [
        build_factor("prefix" if kind == "prefix" and i < numerical else "marginal", size)
        for i, size in enumerate(sizes)
    ]
    return Queries(sizes, _combine(factors, range(least, most + 1)))


def build_pairs(kind: str, n: int, d: int) -> Queries:
    """Build all tables of one and of two of d attributes of n cells, as QuerySmasher does.

    Random queries are drawn by another generator than QuerySmasher's.
    """
    generator = np.random.default_rng(n)
    if kind == "random":
        alone, both = (
            (generator.random((3 * cells, cells)) < 0.3).astype(float) for cells in (n, n * n)
        )
    elif kind in ("affine", "distance"):
        alone, both = build_factor("prefix", n), build_thresholds(kind, n)
    else:
        factor = build_factor(kind, n)
        return Queries((n,) * d, _combine([factor] * d, (1, 2)))
    pairs = tuple(Block(pair, (both,)) for pair in itertools.combinations(range(d), 2))
    return Queries((n,) * d, _combine([alone] * d, (1,)) + pairs)


def build_mixed(n: int, d: int) -> Queries:
    """Build ranges of one, affine queries of two, and prefixes of three of d attributes."""
    affine = build_pairs("affine", n, d).blocks[d:]
    ranges, prefixes = (_combine([build_factor(k, n)] * d, (w,)) for k, w in MIXED)
    return Queries((n,) * d, ranges + affine + prefixes)


MIXED = (("range", 1), ("prefix", 3))


def _combine(factors: list[Matrix], ways: Any) -> tuple[Block, ...]:
    return tuple(
        Block(chosen, tuple(factors[i] for i in chosen))
        for way in ways
        for chosen in itertools.combinations(range(len(factors)), way)
    )


def build_factor(kind: str, n: int) -> Matrix:
    """Build the queries of one attribute of n cells, shape (queries, n)."""
    first, last = np.triu_indices(n) if kind == "range" else np.indices((n, n)).reshape(2, -1)
    cell = np.arange(n)
    if kind == "marginal":
        return np.eye(n)
    if kind == "prefix":
        return np.tril(np.ones((n, n)))
    if kind == "range":
        return ((first[:, None] <= cell) & (cell <= last[:, None])).astype(float)
    return ((cell - first[:, None]) % n <= last[:, None]).astype(float)  # circular


def build_thresholds(kind: str, n: int) -> Matrix:
    """Build i + j <= c, or |i - j| <= c, for all c, over the pairs of cells (i, j)."""
    i, j = np.indices((n, n)).reshape(2, -1)
    value = i + j if kind == "affine" else abs(i - j)
    return (value <= np.arange(value.max() + 1)[:, None]).astype(float)


def run_querysmasher(solver: str, *words: Any) -> Figures:
    """Run QuerySmasher; with the solver `fourier` it is Weighted Fourier Factorizations."""
    import query as authors
    from smasher import Smasher

    queries = build_queries(*words)
    sizes = list(queries.sizes)
    start = time.process_time()
    smasher = Smasher(sizes, privacy_cost=1.0, default_solver=solver, verbose=False)
    for block in queries.blocks:
        if block.is_product and len(block.factors) > 1:
            asked = authors.KronQuery(sizes, block.attributes, list(block.factors))
        else:
            asked = authors.MatrixQuery(sizes, block.attributes, block.factors[0])
        smasher.add_queries_to_workload([asked])
    smasher.optimize()
    total = float(smasher.workload_variance())
    seconds = time.process_time() - start
    figures = _list_figures(queries, total, seconds)
    if queries.size <= MOST_VARIANCES:
        variances = _list_variances(smasher, queries, solver == "convex")
        if not math.isclose(sum(variances), total, rel_tol=1e-6):
            raise ValueError(f"the variances add up to {sum(variances)}, not to {total}")
        figures["largest std"] = math.sqrt(max(variances))
    return figures


def _list_figures(queries: Queries, total: float, seconds: float) -> Figures:
    rmse = math.sqrt(total / queries.size)
    figures: Figures = {"RMSE": rmse, "bound": None, "largest std": None}
    return {**figures, "bound of the largest": None, "s": seconds}


def _list_variances(smasher: Any, queries: Queries, is_convex: bool) -> list[float]:
    """List the variance of each query, which is a sum over the subsets of its attributes."""
    from query import MatrixQuery
    from smasher import powerset

    variances = []
    for block in queries.blocks:
        parts = [p for p in map(tuple, powerset(block.attributes)) if p in smasher.solvers]
        for row in block.expand():
            asked = MatrixQuery(list(queries.sizes), block.attributes, row[None])
            variances.append(
                sum(
                    float(smasher.solvers[p].query_variance(asked.decompose(p, is_convex)))
                    for p in parts
                )
            )
    return variances


def run_residualplanner(*words: Any) -> Figures:
    """Run ResidualPlanner+: for data its own closed form, for pairs with the privacy cost and the
    variances as QuerySmasher's experiments correct them, with the better basis of two."""
    from exp_utils import _ensure_rpp, rpp_variance_general

    _ensure_rpp()  # a stand-in for Gurobi, which is imported and not used
    from resplan import ResPlanSum

    queries = build_queries(*words)
    sizes = list(queries.sizes)
    start = time.process_time()
    if words[0] == "data":
        numerical = DATA[words[2]][1]
        planner = ResPlanSum(sizes, ["P"] * numerical + ["I"] * (len(sizes) - numerical))
        for block in queries.blocks:
            planner.input_mech(block.attributes)
        total = float(planner.get_noise_level())
    else:
        matrices = {block.attributes: block.expand() for block in queries.blocks}
        total = min(
            rpp_variance_general(sizes, list(matrices), matrices, [basis] * len(sizes))
            for basis in "PR"
        )
    seconds = time.process_time() - start
    return _list_figures(queries, total, seconds)


def run_hdmm(*words: Any) -> Figures:
    """Run the templates of HDMM that apply, for Gaussian noise, and take the best of them."""
    from scipy.sparse.linalg import LinearOperator

    if LinearOperator.__dict__.get("__array_ufunc__", 0) is None:
        del LinearOperator.__array_ufunc__  # HDMM takes np.abs of its operators
    from hdmm import templates, workload
    from hdmm.matrix import EkteloMatrix

    queries = build_queries(*words)
    sizes = queries.sizes
    templates_of: list[tuple[Any, Any]] = []
    start = time.process_time()
    if queries.is_product:
        tables = workload.VStack(
            [
                workload.Kronecker(
                    [
                        EkteloMatrix(block.factors[block.attributes.index(i)])
                        if i in block.attributes
                        else workload.Total(size)
                        for i, size in enumerate(sizes)
                    ]
                )
                for block in queries.blocks
            ]
        )
        templates_of.append((templates.DefaultKron(sizes, True), tables))
        templates_of.append((templates.DefaultUnionKron(sizes, len(queries.blocks), True), tables))
        templates_of.append((templates.Marginals(sizes, True), tables))
    if math.prod(sizes) <= LARGEST_MATRIX:
        stacked = EkteloMatrix(
            np.concatenate([expand_over_all(queries, b) for b in queries.blocks])
        )
        templates_of.append((templates.OPT0(math.prod(sizes), True), stacked))
    total = min(float(template.optimize(asked)) for template, asked in templates_of)
    seconds = time.process_time() - start
    return _list_figures(queries, total, seconds)


def expand_over_all(queries: Queries, block: Block) -> Matrix:
    """Return a block's queries over all cells of the domain, shape (queries, cells)."""
    if block.is_product:
        named = dict(zip(block.attributes, block.factors, strict=True))
        ones = [np.ones((1, size)) for size in queries.sizes]
        return reduce(np.kron, [named.get(i, one) for i, one in enumerate(ones)])
    shape = [size if i in block.attributes else 1 for i, size in enumerate(queries.sizes)]
    cells = block.factors[0].reshape(-1, *shape)
    return np.broadcast_to(cells, (block.size, *queries.sizes)).reshape(block.size, -1)


def run_participations(method: str, n: int, k: int) -> Figures:
    """Run a factorization of jax-privacy for prefix sums of n steps and at most k of a person."""
    import jax
    import jax.numpy as jnp
    from jax_privacy.matrix_factorization import buffered_toeplitz, toeplitz

    jax.config.update("jax_enable_x64", True)
    start = time.process_time()

    def compute_loss(coefficients: Any) -> float:
        errors = toeplitz.per_query_error(noising_coef=coefficients, n=n, workload_coef=jnp.ones(n))
        squared = toeplitz.compute_banded_inverse_sensitivity_squared(n, coefficients, 1, k)
        return float(errors.max() * squared)

    if method == "BISR":
        variance = min(
            compute_loss(toeplitz.banded_inverse_square_root_noising_coefs(bands))
            for bands in {min(bands, n) for bands in BANDS}
        )
    elif method == "BandInvMF":
        variance = compute_loss(
            toeplitz.optimize_banded_inverse_toeplitz(
                n, 1, n, max_participations=k, reduction_fn=jnp.max
            )
        )
    else:
        found = buffered_toeplitz.optimize(n=n, min_sep=1, max_participations=k, error="max")
        loss = buffered_toeplitz.LossFn.build_min_sep(n, "max", 1, k)
        variance = float(loss.loss(found))
    return {"largest variance": variance, "bound": None, "s": time.process_time() - start}


PEERS: dict[str, Callable[..., Figures]] = {
    "querysmasher": run_querysmasher,
    "residualplanner": run_residualplanner,
    "hdmm": run_hdmm,
    "jax-privacy": run_participations,
}
