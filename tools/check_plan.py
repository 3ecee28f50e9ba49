"""Check a plan file again, in exact rational numbers, with Python's standard library alone.

    python -I -S tools/check_plan.py plan.npz

The file shares no code with fitplug: it is written from docs/theory/certificate.md, whose sections
it names. It proves the sensitivity, and so rho, the variance of every answer, and the lower bound.
The exit code is 0 if all claims are proven, 1 if one is not, and 3 if the plan is of a kind or size
that is not covered: trees, chains, products, and persons whose rows lie in different cells.
"""

from __future__ import annotations

import ast
import datetime
import hashlib
import itertools
import json
import math
import operator
import random
import re
import struct
import sys
import zipfile
from collections.abc import Iterable, Sequence
from fractions import Fraction
from functools import partial
from typing import Any, NamedTuple

LOOSEST = Fraction(1, 10**8)  # how far on the safe side a claim in floats may be, relatively
FILE_ROOM, MOST_ENTRIES, MOST_WORK = 2**29, 4_000_000, 40_000_000
SATURATION, MOST_ENTRY, FEWEST_RECORDS = 2**62, 2**52, 5 * 10**8
LOWER_PI = Fraction(31415926535897932384626433832795028841, 10**37)
UPPER_PI = LOWER_PI + Fraction(1, 10**37)
UNIT = 1 << 512  # of numbers with a fixed point

Header = dict[str, Any]
Arrays = dict[str, "Array"]
Rows = Sequence[Sequence[Any]]
join = partial(zip, strict=True)


class ClaimError(Exception):
    """A claim of the plan is not proven."""


class NotCoveredError(Exception):
    """The plan is of a kind or size that is not covered."""


def require(holds: Any, wrong: str) -> None:
    if not holds:
        raise ClaimError(wrong)


def limit(holds: bool, large: str) -> None:
    if not holds:
        raise NotCoveredError(large)


def dot(x: Iterable[Any], y: Iterable[Any]) -> Any:
    return sum(map(operator.mul, x, y))


def multiply(X: Rows, Y: Rows) -> list[list[Any]]:
    columns = list(zip(*Y, strict=True))
    return [[dot(row, column) for column in columns] for row in X]


def transpose(X: Rows) -> list[list[Any]]:
    return [list(column) for column in zip(*X, strict=True)]


# The archive.


class Array(NamedTuple):
    dtype: str
    shape: tuple[int, ...]
    values: tuple[Any, ...]  # in C order


def read_archive(path: str) -> tuple[Header, Arrays]:
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        require(sum(member.file_size for member in members) <= FILE_ROOM, "it unpacks to too much")
        arrays = {m.filename.removesuffix(".npy"): read_npy(archive.read(m)) for m in members}
    require(len(arrays) == len(members), "two arrays have one name")
    header, stored = json.loads(bytes(arrays.pop("header").values)), arrays.pop("digest")
    digest = hashlib.sha256(json.dumps(header, sort_keys=True, ensure_ascii=True).encode())
    for name in sorted(arrays):
        dtype, shape, values = arrays[name]
        digest.update(f"\0{name} {dtype} {shape}\0".encode())
        digest.update(struct.pack(f"<{len(values)}{'d' if dtype == '<f8' else 'q'}", *values))
    require(digest.hexdigest() == bytes(stored.values).decode(), "the digest is of other content")
    return header, arrays


def read_npy(data: bytes) -> Array:
    require(data[:8] == b"\x93NUMPY\x01\x00", "an array has another format")
    start = 10 + int.from_bytes(data[8:10], "little")
    described = ast.literal_eval(data[10:start].decode("latin1"))
    dtype, shape = described["descr"], described["shape"]
    code = {"<f8": "d", "<i8": "q", "|u1": "B"}[dtype]
    values = struct.unpack(f"<{math.prod(shape)}{code}", data[start:])
    if described["fortran_order"] and len(shape) > 1:
        steps = [math.prod(shape[:axis]) for axis in range(len(shape))]
        values = tuple(values[dot(at, steps)] for at in itertools.product(*map(range, shape)))
    return Array(dtype, shape, values)


def take(arrays: Arrays, name: str, dtype: str, *shape: int | None) -> Array:
    """Take an array out of those that are left; None stands for any length."""
    require(name in arrays, f"the array {name} is missing")
    array = arrays.pop(name)
    fits = array.dtype == dtype and len(array.shape) == len(shape)
    fits = fits and all(n in (None, m) for n, m in join(shape, array.shape))
    require(fits, f"the array {name} has another shape or type")
    return array


def take_numbers(arrays: Arrays, name: str, *shape: int | None) -> list[Any]:
    """Take finite floats >= 0 as the numbers that they are."""
    values = take(arrays, name, "<f8", *shape).values
    require(all(0 <= x < math.inf for x in values), f"{name} are not finite numbers >= 0")
    return list(map(to_exact, values))


def to_exact(x: float) -> Any:
    """Convert a float to the number that it is; integers of Python are faster than fractions."""
    return int(x) if x.is_integer() else Fraction(x)


def read_hex(text: str) -> Fraction:
    number = float.fromhex(text)
    require(number.hex() == text and 0 <= number < math.inf, "a number in hexadecimal digits")
    return Fraction(number)


def is_integer(x: Any, low: int, high: float = math.inf) -> bool:
    return type(x) is int and low <= x <= high


def are_texts(given: Any) -> bool:
    return isinstance(given, list) and all(isinstance(text, str) and text for text in given)


# The workload: attributes.


class Attribute(NamedTuple):
    values: list[str]
    other: str | None = None
    shares: int = 1
    sums: dict[str, list[Any]] = {}  # noqa: RUF012 what queries may ask of a measure

    @property
    def size(self) -> int:
        return len(self.values) + (self.other is not None)


def read_attribute(spec: Any) -> Attribute:
    """Read the cells of an attribute from the one form in which a plan file has it."""
    if isinstance(spec, list):
        require(spec, "categories without a value")
        return Attribute(name_categories({"categories": spec}))
    kind = next((kind for kind in KINDS if kind in spec), None)
    limit(kind is not None, "an attribute is a hierarchy, or of an unknown kind")
    assert kind is not None
    more, name_values = KINDS[kind]
    require(set(spec) - {"other", "date_format"} == {kind, *more}, "an attribute has another form")
    known = "date_format" not in spec or (kind == "dates" and spec["date_format"] in FORMATS)
    require(known, "an attribute has another form")
    require("other" in spec or kind != "categories", "an attribute has another form")
    values, other = name_values(spec), spec.get("other")
    shares, sums = read_shares(spec) if kind == "measure" else (1, {})
    if "other" in spec:
        require(isinstance(other, str) and not names_value(spec, values, other), "other is a value")
    return Attribute(values, other, shares, sums)


def names_value(spec: Any, values: list[str], text: str) -> bool:
    """Tell whether a text names a value, or an edge of bins."""
    if "integers" in spec and re.fullmatch(r"-?\d{1,20}", text):
        return str(int(text)) in values
    if spec.get("categories") and isinstance(spec["categories"][0], bool):
        return text.title() in values
    try:
        return text in values or ("bins" in spec and float(text) in spec["bins"])
    except ValueError:
        return False


def name_categories(spec: Any) -> list[str]:
    values = spec["categories"]
    types = set(map(type, values))
    require(
        isinstance(values, list) and len(types) <= 1 and types <= {str, int, bool}, "categories"
    )
    require(types != {int} or max(map(abs, values)) < 2**62, "a category is too large")
    require(len(set(values)) == len(values), "a category is listed twice")
    if "prefix" in spec:
        is_prefix = is_integer(spec["prefix"], 1) and types <= {str}
        require(is_prefix and all(len(code) == spec["prefix"] for code in values), "prefixes")
    return list(map(str, values))


def name_integers(spec: Any) -> list[str]:
    low, high = spec["integers"]
    require(is_integer(low, 1 - 2**62) and is_integer(high, low, 2**62 - 1), "ends of integers")
    limit(high - low < MOST_ENTRIES, "an attribute has too many cells")
    return list(map(str, range(low, high + 1)))


def name_bins(spec: Any) -> list[str]:
    edges = spec["bins"]
    are_numbers = all(type(edge) in (int, float) and abs(edge) < 2**53 for edge in edges)
    require(isinstance(edges, list) and len(edges) > 1 and are_numbers, "edges of bins")
    require(all(a < b for a, b in itertools.pairwise(edges)), "edges of bins do not increase")
    return [f"[{a}, {b})" for a, b in itertools.pairwise(edges)]


def name_dates(spec: Any) -> list[str]:
    first, last = map(read_day, spec["dates"])
    name = PERIODS[spec["by"]]

    def name_period(day: int) -> str:
        return name(datetime.date.fromordinal(day)) if 1 <= day <= LAST_DAY else ""

    values = list(dict.fromkeys(map(name_period, range(first, last + 1))))
    require(values, "dates")
    whole = values[0] != name_period(first - 1) and values[-1] != name_period(last + 1)
    require(whole, "a date cuts a period apart")
    return values


def read_day(text: str) -> int:
    day = datetime.date.fromisoformat(text)
    require(day.isoformat() == text, "a date has another form")
    return day.toordinal()


def name_bounds(spec: Any) -> list[str]:
    return list(map(str, spec["measure"]))


def read_shares(spec: Any) -> tuple[int, dict[str, list[Any]]]:
    """Read into how many shares a measure divides a row, and what its queries count of a cell."""
    (low, high), unit = spec["measure"], spec["unit"]
    numbers = [unit] if isinstance(low, str) else [low, high, unit]
    require(all(type(x) in (int, float) and abs(x) < 2**53 for x in numbers), "a measure's numbers")
    exact = [Fraction(repr(number)) for number in numbers]
    if isinstance(low, str):
        exact = [*(Fraction(read_day(text) - 719163) for text in (low, high)), *exact]
    require(exact[2] > 0, "a measure's unit is not positive")
    shares = (exact[1] - exact[0]) / exact[2]
    require(shares.denominator == 1 <= shares <= 2**25, "a measure has no shares, or too many")
    bounds = [to_exact(float(bound)) for bound in exact[:2]]
    if "other" in spec:
        return int(shares), {"sum": [*bounds, 0], "count": [1, 1, 0]}
    return int(shares), {"sum": bounds}


LAST_DAY = datetime.date.max.toordinal()
FORMATS = ("m/d/y", "d/m/y")
PERIODS: dict[str, Any] = {
    "day": str,
    "week": lambda day: "{:04}-W{:02}".format(*day.isocalendar()[:2]),
    "month": lambda day: str(day)[:7],
    "quarter": lambda day: f"{str(day)[:4]}-Q{(day.month + 2) // 3}",
    "year": lambda day: str(day)[:4],
}
"""By period, what names that of a day."""

KINDS: dict[str, Any] = {
    "integers": ((), name_integers),
    "bins": ((), name_bins),
    "dates": (("by",), name_dates),
    "prefix": (("categories",), name_categories),
    "categories": ((), name_categories),
    "measure": (("unit",), name_bounds),
}
"""By its first key, the other keys of an attribute, and what names its values."""


def read_domain(header: Header) -> dict[str, Attribute]:
    domain = {name: read_attribute(spec) for name, spec in header["domain"]}
    require(are_texts([name for name, _ in header["domain"]]), "an attribute has no name")
    require(len(domain) == len(header["domain"]) > 0, "an attribute is named twice")
    require(header.get("value_labels", 1), "there are no labels of values")
    for name, labels in header.get("value_labels", {}).items():
        require(labels and f"{name}_label" not in domain, "labels of values")
        require(set(labels) <= {*domain[name].values, domain[name].other}, "a label of no value")
        texts = are_texts(list(labels.values())) and all(map(str.strip, labels.values()))
        require(texts, "a label of a value is empty")
    return domain


# The workload: groups of queries and their targets.


class Factor(NamedTuple):
    attribute: str
    kind: str
    rows: Rows  # over the attribute's cells


class Group(NamedTuple):
    factors: list[Factor]
    shape: tuple[int, ...]
    target_shape: tuple[int, ...]
    targets: list[Any]  # the largest variances, of the target's shape

    def find_target(self, index: dict[int, int]) -> Any:
        """Find the target of a query, whose index is 0 along axes that are not given."""
        place = 0
        for axis, n in enumerate(self.target_shape, len(self.shape) - len(self.target_shape)):
            place = place * n + (index.get(axis, 0) if n > 1 else 0)
        return self.targets[place]

    def varies(self, axis: int) -> bool:
        """Tell whether the target varies along an axis of the group."""
        place = axis - len(self.shape) + len(self.target_shape)
        if place < 0:
            return False
        n, step = self.target_shape[place], math.prod(self.target_shape[place + 1 :])
        pairs = ((i, i - i // step % n * step) for i in range(len(self.targets)))
        return any(self.targets[i] != self.targets[first] for i, first in pairs)


def read_groups(header: Header, arrays: Arrays, domain: dict[str, Attribute]) -> list[Group]:
    given = take(arrays, "targets", "<f8", None).values
    stored = take_numbers(arrays, "variances", len(given))
    names = [described["name"] for described in header["groups"]]
    require(are_texts(names) and all(map(str.strip, names)), "a group has no name")
    require(len(set(names)) == len(names) > 0, "two groups have one name")
    groups, start = [], 0
    for g, described in enumerate(header["groups"]):
        keys = {"confidence", "factors", "name", "shape", "target"}
        keys |= {"labels"} if described.get("labels") else set()
        keys |= {"simultaneous"} if described.get("simultaneous") is True else set()
        require(set(described) == keys, "a group has other entries")
        factors = read_factors(described, f"group{g}.factor", arrays, domain)
        shape, target = tuple(len(factor.rows) for factor in factors), described["shape"]
        fits = isinstance(target, list) and len(target) <= len(shape)
        fits = fits and all(is_integer(n, 1) for n in target)
        fits = fits and all(n in (1, m) for n, m in zip(target[::-1], shape[::-1], strict=False))
        stop = start + math.prod(target) if fits else 0
        require(fits and stop <= len(given), "a target has another shape")
        for value, variance in join(given[start:stop], stored[start:stop]):
            check_target(described, value, variance, math.prod(shape))
        groups.append(Group(factors, shape, tuple(target), stored[start:stop]))
        start = stop
    require(start == len(given), "there are more targets than groups have")
    return groups


def read_factors(
    described: Any, prefix: str, arrays: Arrays, domain: dict[str, Attribute]
) -> list[Factor]:
    labels, given = described.get("labels", {}), described["factors"]
    require(isinstance(given, list) and set(labels) <= set(map(str, range(len(given)))), "factors")
    require(len({name for name, _ in given}) == len(given), "a group names an attribute twice")
    factors = []
    for f, (name, kind) in enumerate(given):
        array = arrays.pop(f"{prefix}{f}", None)
        require((array is not None) == (kind in ("ranges", "matrix")), "a group's arrays")
        rows = build_rows(domain[name], kind, {} if array is None else {kind: array})
        factors.append(Factor(name, kind, rows))
        texts = labels.get(str(f))
        if texts is not None:
            are_labels = isinstance(texts, list) and all(isinstance(text, str) for text in texts)
            require(kind == "matrix" and are_labels, "labels of rows")
            require(len(set(texts)) == len(texts) == len(rows), "labels of rows")
    return factors


def build_rows(attribute: Attribute, kind: str, arrays: Arrays) -> Rows:
    """Build what a group asks of an attribute, a row for each query over the attribute's cells."""
    n, m = attribute.size, len(attribute.values)
    if kind == "total":
        return [[1] * n]
    if attribute.sums:
        return [attribute.sums[kind]]
    if kind == "matrix":
        _, shape, values = take(arrays, kind, "<f8", None, n)
        fits = shape[0] and all(math.isfinite(x) and str(x) != "-0.0" for x in values)
        require(fits, "a matrix of queries")
        numbers = list(map(to_exact, values))
        return [numbers[r * n : (r + 1) * n] for r in range(shape[0])]
    if kind == "ranges":
        values = take(arrays, kind, "<i8", None, 2).values
        ends = list(join(values[::2], values[1::2]))
    elif kind == "identity":
        ends = [(i, i) for i in range(n)]
    elif kind == "prefix":
        ends = [(0, i) for i in range(m)]
    else:
        require(kind == "all_ranges", "a group asks for something unknown")
        ends = list(itertools.combinations_with_replacement(range(m), 2))
    require(ends and all(0 <= a <= b < n for a, b in ends), "a range outside its attribute")
    limit(len(ends) * n <= MOST_ENTRIES, "an attribute has too many queries")
    return [[int(a <= i <= b) for i in range(n)] for a, b in ends]


def check_target(described: Any, value: float, variance: Any, queries: int) -> None:
    """Check that a variance is what the target asks for, and no larger."""
    kind, confidence = described["target"], described["confidence"]
    require(kind in ("variance", "std", "moe"), "a target is of an unknown kind")
    largest = 1e60 if kind == "variance" else 1e30
    require(1 / largest <= value <= largest and variance > 0, "a target is out of range")
    wrong = "a target variance is not that of its target"
    if kind != "moe":
        require(confidence is None and "simultaneous" not in described, "a confidence of a std")
        asked = Fraction(value) ** (1 if kind == "variance" else 2)
        require(variance <= asked <= variance * (1 + Fraction(1, 2**50)), wrong)
        return
    require(type(confidence) is float and 1e-6 <= confidence < 1, "a confidence is out of range")
    count = queries if "simultaneous" in described else 1
    v, least = Fraction(value) ** 2 / (2 * variance), Fraction(confidence) ** 2
    require(bound_probability(v, count, UPPER_PI) >= least, wrong)
    require(bound_probability(v * (1 - LOOSEST / 10**4), count, LOWER_PI) < least, wrong)


def bound_probability(v: Fraction, count: int, pi: Fraction) -> Fraction:
    """Bound P(|N| <= (2 v)^1/2)^(2 count) for a standard normal N, below with `UPPER_PI`.

    It is (4 v S^2 / pi)^count with S = sum (-v)^n / (n! (2 n + 1)). Each of the 1,200 divisions is
    off by one unit, which the terms after it multiply by less than exp(v) < 2^217.
    """
    limit(v < 150, "a confidence is too near 1")
    fixed = int(v * UNIT)
    total = term = UNIT
    for n in range(1, 1200):
        term = -term * fixed // (UNIT * n)
        total += term // (2 * n + 1)
    down = pi == UPPER_PI
    S = Fraction(total + (-1 if down else 1) * (1 << 240), UNIT)
    base = max(0, int(4 * v * S * S / pi * UNIT) + (not down))
    power = base
    for bit in bin(count)[3:]:
        power = power * power // UNIT + (not down)
        power = power * base // UNIT + (not down) if bit == "1" else power
    return Fraction(power, UNIT)


# Rows, blocks and weights.


class Block(NamedTuple):
    attributes: tuple[int, ...]  # A, as indices of the symmetric attributes
    weight: Fraction  # w_A
    rows: list[int]  # the rows that it answers a part of
    multiples: list[Fraction]  # sigma_tA of each of them
    matrix: Rows  # N_A; for ReplaceOne W', without what public totals answer


class Structure(NamedTuple):
    unit: Any
    symmetric: list[str]
    sizes: list[int]  # n_a of the symmetric attributes
    free: list[int]  # the symmetric attributes along which a row may move
    regions: list[tuple[int, ...]]  # of each dense cell
    targets: list[Any]
    repeats: list[int]
    blocks: list[Block]
    noisy: list[int]
    nodes: list[int]  # the first dense cell of each node
    node_of_cell: list[int]
    differences: list[tuple[int, int, int]]  # two nodes, and a set of `free` in binary digits
    shares: int

    @property
    def cells(self) -> int:
        return len(self.regions)

    @property
    def changes(self) -> int:
        return int(self.unit.get("records", 1))


def check_unit(unit: Any, domain: dict[str, Attribute]) -> list[str] | None:
    """Check the unit of privacy, and return `within`; None if rows are added or removed."""
    limit(not set(unit) & {"distinct", "once_per"}, "rows of a person lie in different cells")
    require(set(unit) in ({"records"}, {"replace_one"}), "the unit of privacy")
    if "records" in unit:
        require(is_integer(unit["records"], 1, 10**6), "the unit of privacy")
        return None
    within = unit["replace_one"]
    require(are_texts(within) and len(set(within)) == len(within), "the unit of privacy")
    require(not any(domain[name].sums for name in within), "the unit names a measure")
    return list(within)


def build_structure(header: Header, domain: dict[str, Attribute], groups: list[Group]) -> Structure:
    within = check_unit(header["unit"], domain)
    asked = {f.attribute for group in groups for f in group.factors if f.kind != "total"}
    names, dense = [name for name in domain if name in asked], header["dense"]
    told_apart = {
        f.attribute
        for group in groups
        for axis, f in enumerate(group.factors)
        if f.kind not in ("identity", "total") or (f.kind == "identity" and group.varies(axis))
    }
    fits = dense == [name for name in names if name in dense] and told_apart & asked <= set(dense)
    require(fits and (within is None or set(dense) <= told_apart), "the dense attributes")
    symmetric = [name for name in names if name not in dense]
    sizes = [domain[name].size for name in symmetric]
    moved = [a for a, n in enumerate(sizes) if n > 1 and symmetric[a] not in (within or ())]
    free = [] if within is None else moved

    cells = list(itertools.product(*(range(domain[name].size) for name in dense)))
    public = [name in (within or ()) for name in dense]
    regions = [tuple(itertools.compress(cell, public)) for cell in cells]
    matrices = [expand(group, dense, domain) for group in groups]
    count = sum(map(len, matrices))
    limit(count * len(cells) <= MOST_ENTRIES, "there are too many queries and cells")
    sizes_of_entries = [abs(x) for rows in matrices for row in rows for x in row if x]
    fits = sizes_of_entries and 1e-30 <= min(sizes_of_entries) <= max(sizes_of_entries) <= 1e30
    require(fits, "all coefficients are zero, or some are out of range")
    sets = [find_symmetric(group, symmetric, sizes) for group in groups]
    references = None
    if within is not None:
        references = find_references([row for rows in matrices for row in rows], cells, public)
    blocks = build_blocks(matrices, sets, sizes, free, regions, references)
    noisy = [b for b, block in enumerate(blocks) if within is None or any(map(any, block.matrix))]
    require(noisy, "public totals answer everything")
    nodes, node_of_cell, differences = list(range(len(cells))), list(range(len(cells))), []
    if within is not None:
        nodes, node_of_cell = find_nodes(regions, [row for rows in matrices for row in rows])
        differences = list_differences([regions[cell] for cell in nodes], len(free))
    shares = math.prod(domain[name].shares for name in names)
    require(shares <= 2**25, "the measures have too many shares")
    return Structure(
        unit=header["unit"],
        symmetric=symmetric,
        sizes=sizes,
        free=free,
        regions=regions,
        targets=[c for group in groups for c in collapse_targets(group, dense)],
        repeats=[math.prod(sizes[a] for a in A) for A, rows in join(sets, matrices) for _ in rows],
        blocks=blocks,
        noisy=noisy,
        nodes=nodes,
        node_of_cell=node_of_cell,
        differences=differences,
        shares=shares,
    )


def list_indices(group: Group, dense: list[str]) -> list[dict[int, int]]:
    """List the indices of a group's rows: those along its dense attributes, by axis."""
    axes = [axis for axis, f in enumerate(group.factors) if f.attribute in dense]
    ranges = [range(group.shape[axis]) for axis in axes]
    return [dict(join(axes, index)) for index in itertools.product(*ranges)]


def collapse_targets(group: Group, dense: list[str]) -> list[Any]:
    return [group.find_target(index) for index in list_indices(group, dense)]


def expand(group: Group, dense: list[str], domain: dict[str, Attribute]) -> Rows:
    """Build N_t: what a group asks of the dense cells, a row for each of its rows."""
    axis_of = {factor.attribute: axis for axis, factor in enumerate(group.factors)}
    rows = []
    for index in list_indices(group, dense):
        row: list[Any] = [1]
        for name in dense:
            ones = [1] * domain[name].size
            axis = axis_of.get(name)
            of_name = ones if axis is None else group.factors[axis].rows[index[axis]]
            row = [a * b for a in row for b in of_name]
        rows.append(row)
        limit(len(rows) * len(row) <= MOST_ENTRIES, "there are too many queries and cells")
    return rows


def find_symmetric(group: Group, symmetric: list[str], sizes: list[int]) -> tuple[int, ...]:
    """Find A_t; a group whose matrix is zero asks for no attribute."""
    if any(f.kind == "matrix" and not any(map(any, f.rows)) for f in group.factors):
        return ()
    asked = {f.attribute for f in group.factors if f.kind != "total"}
    return tuple(a for a, n in enumerate(sizes) if n > 1 and symmetric[a] in asked)


def build_blocks(
    matrices: Sequence[Rows],
    sets: list[tuple[int, ...]],
    sizes: list[int],
    free: list[int],
    regions: list[tuple[int, ...]],
    references: dict[tuple[int, ...], int] | None,
) -> list[Block]:
    """Build the blocks in the order of the file, each with its rows in the order of the file."""
    groups_of: dict[tuple[int, ...], list[tuple[int, int, int]]] = {}
    for g, members in enumerate(sets):
        for chosen in range(2 ** len(members)):
            A = tuple(a for bit, a in enumerate(members) if chosen >> bit & 1)
            groups_of.setdefault(A, []).append((len(members), chosen, g))
    starts = list(itertools.accumulate(map(len, matrices), initial=0))
    blocks = []
    for A in sorted(groups_of, key=lambda A: (len(A), A)):
        block = Block(
            A, math.prod((1 - Fraction(1, sizes[a]) for a in A), start=Fraction(1)), [], [], []
        )
        for _, _, g in sorted(groups_of[A]):
            rest = math.prod(sizes[a] for a in sets[g] if a not in A)
            block.rows.extend(range(starts[g], starts[g + 1]))
            block.multiples.extend([block.weight / rest**2] * len(matrices[g]))
            rows = matrices[g]
            if references is not None and not set(A) & set(free):
                at = [references[region] for region in regions]
                rows = [[x - row[i] for x, i in join(row, at)] for row in rows]
            block.matrix.extend(rows)  # type: ignore[attr-defined]
        blocks.append(block)
    return blocks


def find_references(
    rows: Rows, cells: list[tuple[int, ...]], public: list[bool]
) -> dict[tuple[int, ...], int]:
    """Find the reference cell of each region: that of the fewest queries, summed over regions."""
    rest = [tuple(itertools.compress(cell, [not kept for kept in public])) for cell in cells]
    asked: dict[tuple[int, ...], int] = {}
    for i, values in enumerate(rest):
        asked[values] = asked.get(values, 0) + sum(bool(row[i]) for row in rows)
    least = min(asked, key=asked.__getitem__)  # of several the first
    chosen = [i for i, values in enumerate(rest) if values == least]
    return {tuple(itertools.compress(cells[i], public)): i for i in chosen}


def find_nodes(regions: list[tuple[int, ...]], rows: Rows) -> tuple[list[int], list[int]]:
    """Find cells of one region that no query tells apart: their first ones, and each one's node."""
    classes = classify(rows)
    kinds = list(join(regions, classes))
    order = sorted(set(kinds))
    return [kinds.index(kind) for kind in order], [order.index(kind) for kind in kinds]


def classify(rows: Rows) -> list[int]:
    """Number the different columns as they first occur, -1 for zero."""
    columns = list(zip(*rows, strict=True))
    numbers = {column: c for c, column in enumerate(dict.fromkeys(filter(any, columns)))}
    return [numbers.get(column, -1) for column in columns]


def list_differences(regions: list[Any], free: int) -> list[tuple[int, int, int]]:
    """List the classes of pairs of cells between which a row may move."""
    limit(free <= 10, "a row may move along too many attributes")
    pairs = itertools.combinations(range(len(regions)), 2)
    different = [(a, b) for a, b in pairs if regions[a] == regions[b]]
    same = [(a, a) for a in range(len(regions))]
    limit(len(different) * 2**free <= MOST_ENTRIES, "there are too many pairs of cells")
    return [
        (a, b, moved) for moved in range(2**free) for a, b in different + (same if moved else [])
    ]


# The integers.


class Integers(NamedTuple):
    columns: list[list[int]]  # M B, a row for each answer over the dense cells
    squares: list[Fraction]  # |L_j M^-1|^2 of each row of the block


class Contrasts(NamedTuple):
    kappa: int
    square: int  # |H e_i|^2
    largest: int


def find_contrasts(n: int) -> Contrasts:
    is_prime = all((n - 1) % i for i in range(2, math.isqrt(n - 1) + 1))
    if n & (n - 1) == 0 or (n % 4 == 0 and n <= 128 and is_prime):
        return Contrasts(n, n - 1, 1)
    return Contrasts(n * n, n * (n - 1), n - 1)


def read_strategy(header: Header, arrays: Arrays, structure: Structure) -> dict[int, Integers]:
    """Read the integers of each block."""
    strategy: dict[int, Integers] = {}
    require(isinstance(header["bases"], list), "the bases")
    for i, kind in enumerate(header["bases"]):
        blocks = take(arrays, f"family{i}.blocks", "<i8", None).values
        require(blocks and set(blocks) <= set(structure.noisy), "blocks that are not there")
        require(len(blocks) == 1 or not header["dense"], "several blocks have one basis")
        index = take(arrays, f"family{i}.index", "<i8", None).values
        W = structure.blocks[blocks[0]].matrix if header["dense"] else [[1]]
        n = max(index) + 1 if kind == "cells" else len(index)
        scale = take(arrays, f"family{i}.scale", "<f8", n).values
        given = take(arrays, f"family{i}.M", "<i8", len(blocks), n, n).values
        if kind == "cells":
            require(set(scale) == {1.0}, "a basis of cells has a scale")
            is_public = bool(structure.differences) and bool(header["dense"])
            L, B = span_cells(W, index, classify(W) if is_public else None)
        else:
            require(kind == "rows" and header["dense"], "a basis is of an unknown kind")
            L, B = span_rows(W, index, scale)
        for b, block in enumerate(blocks):
            M = [given[r * n : (r + 1) * n] for r in range(b * n, (b + 1) * n)]
            fits = all(M[r][r] > 0 and not any(M[r][:r]) for r in range(n))
            fits = fits and all(abs(x) < MOST_ENTRY for row in M for x in row)
            require(
                fits and block not in strategy, "M is not triangular, or a block is there twice"
            )
            squares = [square_solution(row, M) for row in L]
            squares *= 1 if header["dense"] else len(structure.blocks[block].rows)
            strategy[block] = Integers(multiply(M, B), squares)
    require(sorted(strategy) == structure.noisy, "a block is not measured")
    return strategy


def span_cells(W: Rows, index: Sequence[int], classes: list[int] | None) -> tuple[Rows, Rows]:
    """Find L and B with W = L B for classes of cells, -1 for cells that no query counts."""
    count = max(index) + 1
    fits = len(index) == len(W[0]) and set(range(count)) <= set(index) <= set(range(-1, count))
    require(fits and count and (classes is None or list(index) == classes), "classes of cells")
    L = [[row[index.index(c)] for c in range(count)] for row in W]
    spans = all(x == (0 if c < 0 else l[c]) for row, l in join(W, L) for x, c in join(row, index))  # noqa: E741
    require(spans, "a basis does not span its block")
    return L, [[int(c == cell) for cell in index] for c in range(count)]


def span_rows(W: Rows, index: Sequence[int], scale: Sequence[float]) -> tuple[Rows, Rows]:
    """Find L and B with W = L B for rows of W times numbers that make them integers."""
    fits = len(set(index)) == len(index) > 0 and set(index) <= set(range(len(W)))
    require(fits and all(0 < x < math.inf for x in scale), "rows of a basis")
    scaled = [[x * Fraction(factor) for x in W[j]] for j, factor in join(index, scale)]
    B = [[round(x) for x in row] for row in scaled]
    pairs = [pair for rows in join(scaled, B) for pair in join(*rows)]
    fits = all(abs(x - b) <= abs(b) * Fraction(1, 2**51) and abs(b) <= 2**20 for x, b in pairs)
    require(fits, "rows of a basis are not integers")
    return represent(W, B), B


def represent(W: Rows, B: Rows) -> Rows:
    """Find L with W = L B, in least squares, by Bareiss' elimination of B B'."""
    n, m = len(B), len(W)
    limit(n * n * (n + m) <= MOST_WORK, "a basis is too large")
    factors = [math.lcm(*(Fraction(x).denominator for x in row)) for row in W]
    scaled = [[int(x * factor) for x in row] for row, factor in join(W, factors)]
    rows = [a + b for a, b in join(multiply(B, transpose(B)), multiply(B, transpose(scaled)))]
    last = 1
    for k in range(n):
        pivot = rows[k]
        require(pivot[k], "rows of a basis are not independent")  # as B B' is semidefinite
        for r in range(n):
            if r != k:
                rows[r] = [(x * pivot[k] - rows[r][k] * y) // last for x, y in join(rows[r], pivot)]
        last = pivot[k]
    L = [[Fraction(rows[k][n + j], last * factors[j]) for k in range(n)] for j in range(m)]
    for row, given in join(multiply(L, B), W):
        off = max(abs(x - y) for x, y in join(row, given))
        require(off * 10**9 <= max(map(abs, given)), "a basis does not span its block")
    return L


def square_solution(row: Sequence[Any], M: Rows) -> Fraction:
    """Compute |x|^2 for x M = row and an upper triangular M, by integers over one denominator."""
    denominator = math.lcm(*(Fraction(x).denominator for x in row))
    u: list[int] = []
    common = 1
    for k, value in enumerate(row):
        rest = int(value * denominator) * common - sum(x * M[i][k] for i, x in enumerate(u))
        u, common = [*(x * M[k][k] for x in u), rest], common * M[k][k]
        divisor = math.gcd(common, *u)
        u, common = [x // divisor for x in u], common // divisor
    return Fraction(dot(u, u), (common * denominator) ** 2)


def find_costs(structure: Structure, strategy: dict[int, Integers]) -> tuple[list[int], int]:
    """Find the largest cost of a difference at each dense cell, and how many rows there may be."""
    contrasts, entry, parts = [find_contrasts(n) for n in structure.sizes], 1, []
    for b, integers in strategy.items():
        A, columns = structure.blocks[b].attributes, transpose(integers.columns)
        nodes = [columns[cell] for cell in structure.nodes]
        fits = all(column == nodes[k] for column, k in join(columns, structure.node_of_cell))
        require(fits, "cells that no query tells apart have different costs")
        largest = max(abs(x) for column in columns for x in column)
        entry = max(entry, math.prod(contrasts[a].largest for a in A) * largest)
        parts.append((A, math.prod(contrasts[a].square for a in A), nodes))
    costs = [0] * len(structure.nodes)
    if not structure.differences:
        costs = [
            sum(s * dot(nodes[i], nodes[i]) for _, s, nodes in parts) for i in range(len(costs))
        ]
    for first, second, moved in structure.differences:
        cost = 0
        for A, same, nodes in parts:
            other = same
            for bit, a in enumerate(structure.free):
                if moved >> bit & 1 and a in A:  # (H e_i)' H e_j = -kappa / n
                    other = (
                        other // contrasts[a].square * -(contrasts[a].kappa // structure.sizes[a])
                    )
            x, y = nodes[first], nodes[second]
            cost += same * (dot(x, x) + dot(y, y)) - 2 * other * dot(x, y)
        costs[first], costs[second] = max(costs[first], cost), max(costs[second], cost)
    times = (structure.changes * structure.shares) ** 2
    of_cells = [costs[k] * times for k in structure.node_of_cell]
    return of_cells, SATURATION // entry // structure.shares


def find_variances(structure: Structure, strategy: dict[int, Integers]) -> list[Fraction]:
    """Compute the variance of each row for noise of variance 1."""
    variances = [Fraction(0)] * len(structure.targets)
    for b, integers in strategy.items():
        block = structure.blocks[b]
        kappa = math.prod(find_contrasts(structure.sizes[a]).kappa for a in block.attributes)
        for row, multiple, square in join(block.rows, block.multiples, integers.squares):
            variances[row] += multiple * square / (kappa * structure.shares**2)
    return variances


# The bound in rationals.


def lower_norm(structure: Structure, p: list[Any], row_weights: list[Any]) -> Fraction:
    """Bound the sum of the blocks' nuclear norms from below."""
    total = Fraction(0)
    for block in map(structure.blocks.__getitem__, structure.noisy):
        scales = [
            lower_root(multiple * row_weights[row])
            for row, multiple in join(block.rows, block.multiples)
        ]
        scaled = [[x * s for x in row] for row, s in join(block.matrix, scales) if s]
        columns = transpose(scaled)
        if structure.differences:
            columns = measure_differences(structure, block, columns, p) if columns else []
        else:
            masses = [lower_root(block.weight * mass) for mass in p]
            columns = [
                [x * s for x in column] for column, s in zip(columns, masses, strict=False) if s
            ]
        total += lower_nuclear_norm(columns) if any(map(any, columns)) else 0
    return total


def measure_differences(
    structure: Structure, block: Block, columns: Rows, p: list[Any]
) -> list[list[Any]]:
    """Multiply queries by factors F_v p_v^1/2 of the differences' moments."""
    nodes, measured = [columns[cell] for cell in structure.nodes], []
    for (first, second, moved), mass in join(structure.differences, p):
        kappa = Fraction(1)
        for bit, a in enumerate(structure.free):
            if moved >> bit & 1 and a in block.attributes:
                kappa *= Fraction(-1, structure.sizes[a] - 1)
        weight = block.weight * mass
        difference = [x - kappa * y for x, y in join(nodes[first], nodes[second])]
        for column, square in ((difference, weight), (nodes[second], weight * (1 - kappa**2))):
            if root := lower_root(square):
                measured.append([x * root for x in column])
    return measured


def lower_root(x: Any) -> Fraction:
    """Return a rational near the square root of x >= 0, and no larger."""
    numerator, denominator = Fraction(x).as_integer_ratio()
    shift = max(0, 240 - numerator.bit_length() + denominator.bit_length()) // 2
    return Fraction(math.isqrt((numerator << 2 * shift) // denominator), 1 << shift)


def lower_nuclear_norm(X: Rows) -> Fraction:
    """Bound the nuclear norm of X from below by <Y, X> / |Y|_2, for Y near its polar factor.

    Floats look for Y, and integers prove the bound: nothing depends on how good Y is.
    """
    X = X if len(X) <= len(X[0]) else transpose(X)
    limit(len(X) ** 2 * len(X[0]) <= MOST_WORK, "a block is too large")
    size, draw = lower_root(sum(dot(row, row) for row in X)), random.Random(0)
    Y = [[float(x / size) + 1e-14 * draw.uniform(-1, 1) for x in row] for row in X]
    for a, b, c in [(3.4445, -4.775, 2.0315)] * 28 + [(1.5, -0.5, 0.0)] * 9:
        E = multiply(Y, transpose(Y))
        squares = multiply(E, E) if c else E
        S = [[b * x + c * y for x, y in join(*rows)] for rows in join(E, squares)]
        Y = multiply(add_diagonal(S, a), Y)
    unit = 1 << 64
    Z = [[int(y * unit) for y in row] for row in Y]
    S = [[-x // unit for x in row] for row in multiply(Z, transpose(Z))]
    Z = [[x // (2 * unit) for x in row] for row in multiply(add_diagonal(S, 3 * unit), Z)]
    # |Y|_2^2 <= 1 + |Y Y' - I|, in the norm of the largest sum of a row.
    defects = add_diagonal(multiply(Z, transpose(Z)), -(unit**2))
    defect = Fraction(max(sum(map(abs, row)) for row in defects), unit**2)
    norm = Fraction(sum(map(dot, X, Z)), unit) / (1 + defect)
    return max(Fraction(0), norm - size * find_allowance(len(X), len(X[0])))


def find_allowance(r: int, n: int) -> Fraction:
    """Find what a bound leaves for those who evaluate it in floats, in units of |X|_F."""
    return Fraction(r * (10 * (r + n) + 64), 2**53)


def add_diagonal(X: list[list[Any]], number: Any) -> list[list[Any]]:
    return [[x + number * (i == j) for j, x in enumerate(row)] for i, row in enumerate(X)]


# Claims.

KEYS = {
    *("domain", "groups", "dense", "ordered", "bases", "unit", "format", "frame"),
    *("sensitivity_squared", "max_records", "noise_std", "scale", "lower_bound"),
    *("tolerance", "total_error_weight", "iterations", "ended"),
}


class Plan(NamedTuple):
    header: Header
    arrays: Arrays  # those that are not checked yet
    groups: list[Group]
    structure: Structure
    strategy: dict[int, Integers]
    noise: Fraction
    scale: Fraction


OTHERS = {"tree", "chain", "siblings"}  # keys of plans that are not covered


def read_plan(path: str) -> Plan:
    header, arrays = read_archive(path)
    is_other = header.get("ordered") or OTHERS & set(header) or "records.cells" in arrays
    limit(not is_other, "a hierarchy, a chain, a product, or one whose differences are named")
    require(set(header) - {"coverage", "value_labels"} == KEYS, "the header has other entries")
    require(is_integer(header["format"], 1, 1), "it has another format")
    require(json.dumps(header["frame"]) == '[0, 0, "0x0.0p+0"]', "it has a frame")
    require(header["ordered"] == [] and type(header["tolerance"]) is float, "ordered or tolerance")
    require(1e-9 <= header["tolerance"] < 1 and is_integer(header["iterations"], 0), "tolerance")
    require(header["ended"] in ("reached", "exhausted", "stopped", "apart"), "how the design ended")
    domain = read_domain(header)
    groups = read_groups(header, arrays, domain)
    structure = build_structure(header, domain, groups)
    strategy = read_strategy(header, arrays, structure)
    noise, scale = read_hex(header["noise_std"]), read_hex(header["scale"])
    require(1 <= noise <= 2**55 and scale, "there is no noise, or too much, or no scale")
    if "coverage" in header:
        check_coverage(header, domain, structure)
    return Plan(header, arrays, groups, structure, strategy, noise, scale)


def check_coverage(header: Header, domain: dict[str, Attribute], structure: Structure) -> None:
    """Check that rows in no table cost no more than rows in the tables."""
    names = [*structure.symmetric, *header["dense"]]
    d = sum(domain[name].other is None for name in names)
    require(header["coverage"] is True and d and "records" in header["unit"], "coverage")
    most = int(header["sensitivity_squared"]) // structure.changes**2
    part = 3 / (d + 3) if d <= 9 else 1 / (1 + math.sqrt(d))
    n = math.isqrt(most if d == 1 else int(part * most))
    m = 0 if d == 1 else math.isqrt((most - n * n) // d)
    require(n and (m or d == 1) and d * m * m + n * n <= most, "rows in no table cost more")


def check_cost(plan: Plan) -> list[Any]:
    """Check the sensitivity and the profile, and return the profile that is claimed."""
    header, structure = plan.header, plan.structure
    costs, records = find_costs(structure, plan.strategy)
    require(header["sensitivity_squared"] == str(max(costs)), "the sensitivity is another one")
    require(header["max_records"] == str(records), "the number of rows it can hold is another one")
    require(records >= FEWEST_RECORDS, "it can hold too few rows")
    profile = take_numbers(plan.arrays, "column_squares", structure.cells)
    fits = all(cost <= x <= cost * (1 + LOOSEST) for cost, x in join(costs, profile))
    require(fits, "the privacy profile is another one")
    of_cell = take(plan.arrays, "tiers.of_cell", "<i8", structure.cells).values
    levels = plan.arrays["tiers.p"].shape[0]
    require(max(of_cell) <= levels + 1, "the tiers")
    require(set(of_cell) - {-1} == set(range(max(of_cell) + 1)), "the tiers are not numbered")
    require(all((t < 0) == (x == 0) for t, x in join(of_cell, costs)), "the tiers leave out cells")
    for name, size in (
        ("tiers.p", count_differences(structure)),
        ("tiers.q", len(structure.targets)),
    ):
        values = take_numbers(plan.arrays, name, levels, size)
        rows = [values[t * size : (t + 1) * size] for t in range(levels)]
        require(all(map(any, rows)), "the weights of a tier are zero")
    return profile


def count_differences(structure: Structure) -> int:
    return len(structure.differences) or structure.cells


def check_variances(plan: Plan) -> tuple[list[Any], Fraction]:
    """Check all variances; return those that are claimed, and the largest over its target."""
    targets = plan.structure.targets
    variances = find_variances(plan.structure, plan.strategy)
    claims = take_numbers(plan.arrays, "unit_variances", len(targets))
    fits = all(x <= claim <= x * (1 + 2 * LOOSEST) for x, claim in join(variances, claims))
    require(fits, "the variances are others")
    ratio = max(plan.noise**2 * claim / c for claim, c in join(claims, targets))
    require(ratio <= plan.scale, "a target is not met")
    require(ratio >= plan.scale * (1 - LOOSEST), "there is less noise, or more scale, than needed")
    return claims, Fraction(ratio)


def check_bound(
    plan: Plan, profile: list[Any], variances: list[Any]
) -> tuple[str, Fraction, Fraction]:
    """Check the lower bound; return what it is on, the plan's value, and the bound."""
    structure, arrays = plan.structure, plan.arrays
    stated, weight = (
        read_hex(plan.header["lower_bound"]),
        read_hex(plan.header["total_error_weight"]),
    )
    p = take_numbers(arrays, "p", count_differences(structure))
    q = take_numbers(arrays, "q", len(structure.targets))
    require(any(p) and any(q) and stated, "the dual weights, or the lower bound, are zero")
    is_plain, budgets = not weight and "budgets" not in arrays, [Fraction(1)] * structure.cells
    if "budgets" in arrays:
        budgets = list(map(Fraction, take_numbers(arrays, "budgets", structure.cells)))
        fits = all(x <= plan.noise**2 * budget for x, budget in join(profile, budgets))
        require(all(budgets) and fits, "a cell budget is exceeded")
    require(not arrays, f"there are other arrays: {', '.join(arrays)}")
    require(is_plain or not structure.differences, "the objective is not one of this unit")
    repeats, mass = structure.repeats, sum(q)
    row_weights = [
        x / (plan.scale * c) + weight * n * mass for x, c, n in join(q, structure.targets, repeats)
    ]
    masses = p if structure.differences else [x / budget for x, budget in join(p, budgets)]
    proven = (structure.changes * lower_norm(structure, masses, row_weights)) ** 2 / (sum(p) * mass)
    require(stated**2 <= proven, "the dual weights do not prove the lower bound")
    require(proven * (1 - LOOSEST) ** 2 <= stated**2, "the lower bound is not that of the weights")
    excess = 1 + weight * plan.noise**2 * dot(repeats, variances)
    cost = max(x / budget for x, budget in join(profile, budgets)) / plan.noise**2 * excess
    cost = int(plan.header["sensitivity_squared"]) / plan.noise**2 if is_plain else cost
    require(stated**2 <= cost, "the lower bound is above the cost")
    return ("rho", cost / 2, stated**2 / 2) if is_plain else ("objective", cost, stated**2)


def check_plan(path: str) -> list[str]:
    """Check all claims of a plan file, and return what is proven, in sentences.

    Raises:
        ClaimError: A claim is not proven.
        NotCoveredError: The plan is of a kind or size that is not covered.
    """
    plan = read_plan(path)
    profile = check_cost(plan)
    variances, ratio = check_variances(plan)
    what, value, bound = check_bound(plan, profile, variances)
    rho = int(plan.header["sensitivity_squared"]) / (2 * plan.noise**2)
    return [
        f"rho = {float(rho):.9g} for one person ({json.dumps(plan.header['unit'])}), exactly {rho}",
        f"{sum(plan.structure.repeats)} answers meet their targets, times {float(plan.scale):.9g}; "
        f"the largest variance is {float(ratio):.9g} times its target",
        f"no mechanism with Gaussian noise that does has a lower {what} than {float(bound):.9g}, "
        f"and this plan's is at most {float(value / bound - 1):.2g} above, relatively",
    ]


def find_result(path: str) -> tuple[int, list[str]]:
    """Check a plan file, and return the exit code and what there is to say."""
    try:
        return 0, ["proven", *check_plan(path)]
    except NotCoveredError as reason:
        return 3, [f"not covered: {reason}"]
    except ClaimError as wrong:
        return 1, [f"NOT PROVEN: {wrong}"]
    except Exception as error:  # entries that are missing or of another type
        return 1, [f"NOT PROVEN: the file is incomplete ({type(error).__name__})"]


def main(paths: list[str]) -> int:
    """Check plan files and print the results; return the exit code; 1 is the worst."""
    results = [(path, *find_result(path)) for path in paths]
    for path, _, lines in results:
        print(f"{path}: " + "\n  ".join(lines))
    return min((code for _, code, _ in results if code), default=0 if paths else 2)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
