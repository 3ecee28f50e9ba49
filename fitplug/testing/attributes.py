"""The check of a kind of attribute: its cells, their names, and what other rooms do with them."""

from __future__ import annotations

import json
import pickle
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fitplug.counts import Tables
from fitplug.domain import OUTSIDE, TYPE_NAMES, Attribute, Domain, ValueLookup, get_codec
from fitplug.errors import DataError, DomainError
from fitplug.plan import design
from fitplug.testing.plans import check_plan, check_plan_file, require
from fitplug.workload import Workload, queries, ranges

_UNKNOWN = "no such value"

_CANARY = "Zanzibarquux"
"""A text that no message may contain."""

_MOST_CELLS = 60
"""The most cells for which a plan is checked by brute force."""


def check_attribute(attribute: Attribute, values: Mapping[Any, int | None]) -> None:
    """Check an attribute of a kind of your own: a subclass of `Attribute` with a `Codec`.

    The checks cover its labels, ranges, levels, codes and entry in a spec, a count of rows, and a
    plan with queries on the attribute. Measures, whose rows are divided between cells, are not
    covered.

    Args:
        attribute: The attribute. It should have few cells, because the check takes time quadratic
            in their number.
        values: A mapping from values, as rows hold them, to their cells. It needs at least one
            value of each cell, and some values without a cell, which map to None or to the cell of
            `other`. Derive the cells from the definition, not from the code.

    Raises:
        AssertionError: The attribute does not keep the contract.

    Example:
        >>> ages = fp.Bins([0, 18, 65])
        >>> fitplug.testing.check_attribute(ages, {0.0: 0, 17.9: 0, 18.0: 1, 65.0: None})
    """
    require(not get_codec(attribute).quantities, "measures are not covered by this check")
    _check_names(attribute)
    _check_ranges(attribute)
    _check_levels(attribute)
    _check_spec(attribute)
    _check_codes(attribute, values)
    _check_counts(attribute, values)
    if attribute.size <= _MOST_CELLS:
        _check_plans(attribute)


def _check_names(attribute: Attribute) -> None:
    """Check that labels, texts and values name their cells, and nothing else does."""
    codec, size = get_codec(attribute), attribute.size
    labels, cells = attribute.labels, list(range(size))
    columns = [*map(str, codec.column_values())]
    require(size > 0, "the attribute has no cell")
    require(len(labels) == len(set(labels)) == size, "a cell has no label of its own")
    require(columns == [*labels], "the texts in tables differ from the labels")
    require(len(attribute.values) == codec.value_count, "value_count is not the number of values")
    require(codec.value_count == size - (attribute.other is not None), "`other` adds no cell")
    require(attribute.other in (None, labels[-1]), "the last label is not the label of other")
    named = [codec.find_cell(label) for label in labels]
    require(named == cells, "labels do not name their cells")
    lookup = ValueLookup(attribute)
    are_single = [lookup.find(label) for label in labels] == [{(c, c)} for c in cells]
    require(are_single, "a label also names other cells")
    for value in (_UNKNOWN, None, object()):
        require(codec.find_cell(value) is None, f"an unknown {type(value).__name__} names a cell")
    runs = codec.label_runs(np.stack([np.arange(size)] * 2, axis=1))
    require(runs == [*labels], "a range of one cell has a label that differs from the cell's label")
    require(codec.suggest(_UNKNOWN), "an unknown value gets no suggestion")
    require(codec.remedy("them"), "the error for too many cells names no remedy")


def _check_ranges(attribute: Attribute) -> None:
    """Check that ranges reach from end to end, and that ordered queries leave out `other`."""
    codec = get_codec(attribute)
    n, other = codec.value_count, attribute.other
    is_value = np.arange(attribute.size) < n
    if n:
        ends = [codec.find_end(end) for end in codec.ends]
        require(ends == [0, n - 1 + codec.is_half_open], "the ends are not the first and last cell")
        bounds, rows = [codec.ends], [is_value]
        if other is not None:
            bounds += [(codec.ends[0], other), (other, other)]
            rows += [is_value | True, ~is_value]
        _check_rows(attribute, ranges(bounds), np.array(rows))
    require(codec.find_end(_UNKNOWN) is None, "an unknown value is accepted as an end")
    require(other is None or codec.find_end(other) is None, "`other` is accepted as an end")
    pairs = [(a, b) for a in range(n) for b in range(a, n)]
    for kind, intervals in (("prefix", [(0, b) for b in range(n)]), ("all_ranges", pairs)):
        cells = np.arange(attribute.size)
        _check_rows(attribute, kind, np.array([(a <= cells) & (cells <= b) for a, b in intervals]))


def _check_rows(attribute: Attribute, kind: Any, rows: Any) -> None:
    """Check the coefficients of queries of a kind, and that each has a label."""
    if not len(rows):
        return
    workload = Workload(Domain({"a": attribute}), [queries({"a": kind}, std=1.0)])
    factor = workload.groups[0].factors[0]
    shown = kind if isinstance(kind, str) else "ranges"
    require(
        np.array_equal(workload.matrix(), rows), f"queries of the kind {shown} count wrong cells"
    )
    require(len(factor.labels(attribute)) == len(rows), f"a query of the kind {shown} has no label")


def _check_levels(attribute: Attribute) -> None:
    """Check that the nodes of each level are runs of cells that cover all of them."""
    codec = get_codec(attribute)
    for level in codec.levels:
        intervals = codec.intervals(level)
        covered = [cell for a, b in intervals.tolist() for cell in range(a, b + 1)]
        require(
            covered == list(range(attribute.size)),
            f"nodes of {level} do not contain each cell once",
        )
        require(len(codec.labels_at(level)) == len(intervals), f"a node of {level} has no label")
    for ask in (codec.intervals, codec.labels_at, codec.named_at):
        try:
            ask(_UNKNOWN)
        except DomainError:
            continue
        raise AssertionError("an unknown level must raise DomainError")


def _check_spec(attribute: Attribute) -> None:
    """Check that spec files, plan files and other processes get the same attribute."""
    codec, written = get_codec(attribute), get_codec(attribute).spec()
    again = Domain.from_spec({"a": json.loads(json.dumps(written))})["a"]
    for copy, what in (
        (again, "the attribute read from its spec"),
        (pickle.loads(pickle.dumps(attribute)), "the attribute read from its pickle"),
        (pickle.loads(pickle.dumps(codec)).attribute, "the attribute of its pickled codec"),
    ):
        is_same = type(copy) is type(attribute) and copy == attribute
        require(is_same, f"{what} is not equal to it")
        require(hash(copy) == hash(attribute), f"{what} has a different hash")
        require(get_codec(copy).digest == codec.digest, f"{what} has a different digest")
    if isinstance(written, Mapping):
        is_named = any(name in written for name in codec.spec_form.names)
        require(is_named, "no key of its spec_form names the kind in its spec")
        try:
            Domain.from_spec({"a": {**written, "no_such_key": 1}})
        except DomainError:
            return
        raise AssertionError("an unknown key in the attribute's spec must raise DomainError")


def _check_codes(attribute: Attribute, values: Mapping[Any, int | None]) -> None:
    """Check the codes of values, of null and of values of another type."""
    codec = get_codec(attribute)
    require(codec.value_type in TYPE_NAMES, f"value_type is none of {[*TYPE_NAMES]}")
    null = OUTSIDE if attribute.other is None else attribute.size - 1
    require(codec.null_code == null, "null and values outside the domain have different codes")
    require(codec.code_count == attribute.size, "code_count differs from the number of cells")
    lacking = set(range(codec.value_count)) - {*values.values()}
    require(not lacking, f"`values` has none of the cells {sorted(lacking)[:8]}")
    given = np.array([*values, None], dtype=object)
    expected = [null if cell is None else cell for cell in (*values.values(), None)]
    codes = codec.codes(given)
    require(codes.dtype.kind == "i", "codes are not integers")
    for value, code, cell in zip(given, codes.tolist(), expected, strict=True):
        require(code == cell, f"{value!r} has the code {code} and not {cell}")
    require(codec.codes([]).tolist() == [], "an empty list of values gets codes")
    for value in (_CANARY, 7):
        if isinstance(value, codec.value_type) or {codec.value_type, type(value)} <= {int, float}:
            continue
        try:
            code = codec.codes(np.array([value], dtype=object)).tolist()[0]
        except DataError as error:
            require(_CANARY not in str(error), "an error quotes a value of a row")
        except Exception as error:  # what it is does not matter: it is the wrong class
            raise AssertionError(f"a wrong type must raise DataError: {error!r}") from error
        else:
            require(code == null, "a value of the wrong type has a cell")
    span = codec.integer_span
    if span is not None:
        ends = codec.codes_of_numbers(np.array(span)).tolist()
        for step in (1, 5, 1000):
            beyond = codec.codes_of_numbers(np.array([span[0] - step, span[1] + step])).tolist()
            require(
                beyond == ends, "integers beyond integer_span do not have the codes of its ends"
            )


def _check_counts(attribute: Attribute, values: Mapping[Any, int | None]) -> None:
    """Check a count of rows against a plain count."""
    generator = np.random.default_rng(1)
    domain = Domain({"s": ["x", "y"], "a": attribute})
    rows = list(_draw_rows(generator, values, 40 * len(values)))
    texts = ["xy"[k] for k in generator.integers(0, 2, len(rows))]
    expected: Counter[tuple[int, int]] = Counter()
    for text, (_, cell) in zip(texts, rows, strict=True):
        cell = get_codec(attribute).null_code if cell is None else cell
        if cell != OUTSIDE:
            expected["xy".index(text), cell] += 1
    records = {"s": texts, "a": [value for value, _ in rows]}
    counted = Tables.from_records(domain, records, [("s", "a"), ("a",)])
    table = np.zeros(domain.shape, dtype=np.int64)
    for place, number in expected.items():
        table[place] = number
    require(
        np.array_equal(counted["s", "a"], table), "a count differs from the number of its values"
    )
    require(
        np.array_equal(counted[("a",)], table.sum(axis=0)),
        "a margin differs from the sums of its table",
    )


def _draw_rows(
    generator: np.random.Generator, values: Mapping[Any, int | None], number: int
) -> Sequence[tuple[Any, int | None]]:
    """Draw values of rows, each of them and null at least once, with their cells."""
    listed = [*values.items(), (None, None)]
    drawn = generator.integers(0, len(listed), number)
    return [*listed, *(listed[k] for k in drawn)]


def _check_plans(attribute: Attribute) -> None:
    """Check a plan with queries of every kind on the attribute."""
    asked: list[Any] = ["identity", *get_codec(attribute).levels]
    asked += ["prefix"] if get_codec(attribute).value_count else []
    groups = [queries({"s": "identity", "a": kind}, std=3.0, name=kind) for kind in asked]
    plan = design(Workload(Domain({"s": ["x", "y"], "a": attribute}), groups), tolerance=1e-2)
    plan.verify()
    check_plan(plan)
    check_plan_file(plan)
