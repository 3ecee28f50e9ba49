"""`fitplug init`: a spec to fill in, from the names and types of the columns alone."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from fitplug.domain import Domain, get_codec
from fitplug.errors import DomainError, InputError
from fitplug_cli.files import PUBLIC, check_parent_folder, replace_file
from fitplug_cli.inputs import Codebook, read_codebook
from fitplug_cli.options import JsonOption, QuietOption
from fitplug_cli.render import print_facts, print_json, set_up_output
from fitplug_cli.spec import UNDECIDED
from fitplug_dask.preview import FOLDER, ZONED, list_columns

_HEAD = """\
# What to publish about the people in {path}, and how accurate it must be.
# Written from the names and types of the columns. No row was read.
#
#     fitplug report {spec}    shows what the targets cost; reads no data
#     fitplug run {spec}       counts, charges the ledger and releases

[data]
path = {path}
{zone}# person = "..."                # column that identifies people; counting then keeps no more
#                               # rows per person than the unit below allows
# weight = "..."                # for aggregated rows: column with the number of people per row
# where = {{ COLUMN = ["..."] }}  # count only rows with one of these values

[privacy]
unit = {unit:<25}# {{ records = 1 }} if every row is a different person, or
                                # {{ records = K }} if a person may have up to K rows, which cost
                                # K^2 times the rho of one row
# max_rho = 0.5                 # stop if the targets cost more rho than this
delta = 1e-9                    # the delta at which epsilon is reported

[domain]                        # possible values, from a codebook and never from the rows
# A column that identifies people belongs in [data] person, not in the domain.
# other = "missing" after the values, as in {{ integers = [0, 120], other = "missing" }}, adds a
# cell for null and all other values. Without `other`, rows with such values are not counted.
{values}"""

_TAIL = """
[[query]]                       # one table. Add ATTRIBUTE = "identity" to count each value, or
name = "total"                  # "prefix", {{ ranges = [[18, 64]] }} or the name of a level instead
                                # of "identity". The table sums over attributes not named here.
std = 10.0                      # or moe = 20.0 with confidence = 0.90, or targets = "targets.csv"
{more}
[ledger]
path = "budget.db"
rho = 1.0                       # the budget for these people, for all releases

[output]
path = "release/"

[design]
# coverage = true               # also release how many rows are not counted, at no further cost;
#                               # not possible with [data] person

[about]                         # for the review of the release
# name = "..."                  # name of the data product
# curators = ["..."]            # who publishes it
# description = "..."
# intended_use = "..."
# region = "..."                # region that the data describe, or whose law applies
# sector = "..."                # Technology, Healthcare, Education, Government, Energy or Finance
# unit = "person"               # whose rows are protected together
# actors = "..."                # who holds the data, and who receives the release
# preprocessing = "..."         # how the rows were prepared before counting
# sources = "..."               # links to documentation
# notes = "..."
# authors = ["..."]             # authors of the review
"""

_ZONE = """\
# zone = "Europe/Berlin"        # time zone in which the times in the data become dates
"""

_SECOND_QUERY = """
# [[query]]
# name = {name}
# {table}
# std = 20.0
"""

_SUM_QUERY = """
# [[query]]
# name = {name}
# {key} = "sum"                  # sums, in the units of the measure
# std = ...
"""

_FORMS = {
    "integers": "{ integers = [0, 120] }, { bins = [0, 18, 65, 121] } or a list of codes, [1, 2]",
    "floats": "{ bins = [0, 10000, 50000] } or, for whole numbers, { integers = [0, 120] }",
    "decimals": "{ bins = [0, 10000, 50000] } or, for whole numbers, { integers = [0, 120] }",
    "strings": '["...", "..."], { codebook = "codes.csv" } or { prefix = 2, categories = [...] }',
    "text": '["...", "..."], { integers = [0, 120] }, { bins = [...] } or { dates = [...] }',
    "booleans": "[false, true]",
    "dates": '{ dates = ["1920-01-01", "2026-12-31"], by = "year" }',
    "times": '{ dates = ["2020-01", "2020-12"], by = "month" }, with zone in [data]',
    "folder": 'the folders\' values: ["...", "..."]',
}
"""What the domain may say of a column of each type."""

_SUMS = "{ measure = [0, 200000], unit = 100 }, for sums instead of counts"


_NUMBERS = ("integers", "floats", "decimals", "text")
"""Types of columns that may hold numbers, and so have sums."""

_MANY = 1000
"""A codebook's range of more integers than this becomes a measure with at least as many units."""

_LARGEST_EXPONENT = 9


def init(
    data: Annotated[str, typer.Argument(help="File, folder, glob or URL.", metavar="DATA")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to write the spec.")] = Path(
        "release.toml"
    ),
    codebook: Annotated[
        Path | None,
        typer.Option("--codebook", help="File that lists the values of each attribute."),
    ] = None,
    records: Annotated[
        int | None,
        typer.Option("--records", min=1, help="Largest number of rows that one person may have."),
    ] = None,
    header: Annotated[
        bool,
        typer.Option(
            "--header", help="Take the first line as column names even if it looks like data."
        ),
    ] = False,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Create a spec from the names and types of the columns. No row is read."""
    set_up_output(quiet=quiet, as_json=as_json)
    if not data:
        raise InputError("DATA is empty. Name a file, folder, glob or URL.")
    _check_is_new(output)
    folder = output.absolute().parent
    path = data if "://" in data else os.path.relpath(data, folder)
    types = list_columns(data, header=header)
    content = _build_text(path, types, output.name, codebook, folder, records)
    with replace_file(output, PUBLIC) as partial:
        partial.write_text(content, encoding="utf-8")
    asked = "domain and queries" if records else "unit of privacy, domain and queries"
    print_facts(("spec", f"{output} (new). Fill in its {asked}."))
    if as_json:
        print_json({"spec": str(output), "columns": dict(types)})


def _build_text(
    path: str,
    types: Mapping[str, str],
    spec: str,
    codebook: Path | None,
    folder: Path,
    records: int | None,
) -> str:
    """Build the text of a spec; attributes missing from the codebook become comments.

    Args:
        path: The path of the rows in the spec.
        types: The type of each column.
        spec: The file name of the spec.
        codebook: A codebook of the attributes, if there is one.
        folder: The folder of the spec.
        records: The largest number of rows per person; None if undecided.
    """
    book = Codebook() if codebook is None else read_codebook(codebook)
    known = book.entries
    if codebook is not None and not known.keys() & types.keys():
        raise InputError(
            f"{codebook} describes none of the {len(types)} columns of the data. Name the codebook "
            "of these data."
        )
    lines = [
        _write_known(name, kind, known[name], codebook, folder, has_labels=name in book.labels)
        if name in known
        else _write_unknown(name, kind)
        for name, kind in types.items()
    ]
    described = [name for name in types if name in known]
    sums = [name for name in described if _convert_to_measure(known[name], types[name])]
    first = next((name for name in described if name not in sums), "ATTRIBUTE")
    more = _SECOND_QUERY.format(
        name=_quote(f"by {first}"), table=f'{_write_key(first)} = "identity"'
    )
    if sums:
        more += _SUM_QUERY.format(name=_quote(f"sum of {sums[0]}"), key=_write_key(sums[0]))
    unknown = dict.fromkeys(kind for name, kind in types.items() if name not in known)
    forms = [(kind, _FORMS[kind]) for kind in unknown if kind in _FORMS]
    if sums or any(kind in _NUMBERS for kind in unknown):
        forms.append(("numbers", _SUMS))
    values = "".join(f"#   {kind:<10}{form}\n" for kind, form in forms)
    values = (
        values
        and f"# How to write the values of an attribute, by the type of its column:\n{values}"
    )
    unit = f'"{UNDECIDED}"' if records is None else f"{{ records = {records} }}"
    zone = _ZONE if ZONED in types.values() else ""
    head = _HEAD.format(path=_quote(path), spec=spec, zone=zone, unit=unit, values=values)
    return head + "\n".join(lines) + "\n" + _TAIL.format(more=more)


def _convert_values(value: Any, kind: str) -> Any:
    """Convert a codebook's values to the type of their column.

    Codebooks often write digit codes as numbers, or numbers as text.
    """
    if not isinstance(value, list):
        return value
    if kind in ("strings", "text", FOLDER):
        return [str(v) if type(v) is int else v for v in value]
    if kind == "integers" and all(
        isinstance(v, str) and re.fullmatch("-?[0-9]+", v) for v in value
    ):
        return [int(v) for v in value]
    return value


def _write_known(
    name: str, kind: str, given: Any, codebook: Path | None, folder: Path, *, has_labels: bool
) -> str:
    """Write the line of an attribute in the codebook; `given` is its value there."""
    value = _convert_values(given, kind)
    measure = _convert_to_measure(value, kind)
    if measure is not None:
        low, high = measure["measure"]
        return f"{_write_key(name)} = {{ measure = [{low}, {high}], unit = {measure['unit']} }}"
    try:
        size = Domain.from_spec({name: value})[name].size
    except DomainError:
        return f"# {_write_key(name)} = ...  # its values in {codebook} are not valid"
    shown = json.dumps(value, ensure_ascii=False)
    if isinstance(value, dict):
        if "measure" in value:  # the column does not hold numbers
            return _write_unknown(name, kind)
        shown = f"{{ integers = {value['integers']} }}"
    elif value == given and (has_labels or len(shown) > 60):
        assert codebook is not None
        path = codebook if codebook.is_absolute() else _make_relative(codebook, folder)
        shown = f"{{ codebook = {_quote(str(path))} }}"
    return f"{_write_key(name)} = {shown}  # {size:,} cells"


def _convert_to_measure(value: Any, kind: str) -> dict[str, Any] | None:
    """Convert a codebook's wide range of numbers to a measure.

    Args:
        value: The attribute's value in the codebook.
        kind: The type of its column.

    Returns:
        A table such as `{ measure = [0, 200000], unit = 100 }`, with the codebook's unit or
        the largest power of ten that gives enough units; None if the value is not a range, or a
        narrow one.
    """
    if not isinstance(value, dict) or kind not in _NUMBERS:
        return None
    if "measure" in value:
        return _check_spec(value)
    low, high = value["integers"]
    are_integers = type(low) is type(high) is int
    if are_integers and high - low < _MANY:
        return None
    for exponent in range(_LARGEST_EXPONENT, -_LARGEST_EXPONENT - 1, -1):
        unit = 10**exponent if exponent >= 0 else float(f"1e{exponent}")
        measure = _check_spec({"measure": [low, high], "unit": unit}, _MANY)
        if measure is not None:
            return measure
    return None


def _check_spec(measure: dict[str, Any], least: int = 1) -> dict[str, Any] | None:
    """Return the spec of a measure if it is valid and has at least `least` units."""
    try:
        made = Domain.from_spec({"measure": measure})["measure"]
    except DomainError:
        return None
    return measure if get_codec(made).shares >= least else None


def _write_unknown(name: str, kind: str) -> str:
    """Write the comment for an attribute missing from the codebook."""
    note = kind if kind in _FORMS else f"{kind}, which cannot be counted: convert the column"
    return f"# {_write_key(name)} = ...  # {note}"


def _make_relative(path: Path, folder: Path) -> Path:
    try:
        return path.resolve().relative_to(folder.resolve())
    except ValueError:
        return path.absolute()


def _write_key(name: str) -> str:
    """Write a name as a key of TOML."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _quote(name)


def _quote(value: str) -> str:
    """Write text as a TOML string; TOML accepts the escapes of JSON."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _check_is_new(target: Path) -> None:
    if target.exists():
        raise InputError(f"{target} already exists. Name another file with --output.")
    check_parent_folder(target)
