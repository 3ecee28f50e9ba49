"""Spec files: TOML, one to one with the Python contract. Read, checked, turned into a workload."""

from __future__ import annotations

import glob
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.fields import FieldInfo

from fitplug.counts import check_rows, filters_of, say_rows
from fitplug.domain import Domain
from fitplug.errors import FitplugError, InputError, WorkloadError, suggest_nearest
from fitplug.ledger import MOST_CONTRIBUTIONS
from fitplug.privacy import rho_at
from fitplug.release import RESULT_COLUMNS, About
from fitplug.structure import LARGEST_WEIGHT
from fitplug.workload import LEAST_CONFIDENCE, UnboundQueryGroup, Workload, queries, ranges, rows
from fitplug_cli import codebooks, crosswalks, targetfiles
from fitplug_cli.files import text_of
from fitplug_cli.rowfiles import check_public

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Positive: TypeAlias = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Probability: TypeAlias = Annotated[float, Field(gt=0, lt=1)]

TARGET_KEYS = ("variance", "std", "moe", "confidence", "simultaneous")
_RESERVED = {"name", "group", targetfiles.KEY, *TARGET_KEYS, *RESULT_COLUMNS}


class SpecError(InputError):
    """A spec file is wrong."""


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Data(_Section):
    """[data]: the rows, at a path or a URL. contributions: rows one person may have. person: a
    column that identifies persons, to keep no more rows of each; without it, the number is taken on
    trust. storage_options: keywords of the file system that a URL names, such as credentials.
    cluster: address of a Dask scheduler whose workers count. weight: a column that says how many
    records each row stands for. where: the values that rows must hold to be counted, by column.
    """

    path: str = Field(min_length=1)
    cluster: str | None = Field(default=None, min_length=1)
    contributions: int = Field(default=1, ge=1, le=MOST_CONTRIBUTIONS)
    person: str | None = Field(default=None, min_length=1)
    storage_options: dict[str, Any] = Field(default={}, repr=False)
    weight: str | None = Field(default=None, min_length=1)
    where: Any = None

    @property
    def rows(self) -> str | None:
        """How rows are understood, if they are weighted or filtered; as `Tables.rows` has it."""
        return say_rows(self.weight, filters_of(self.where))

    @property
    def local(self) -> str | None:
        """The path, if it is none in a store."""
        path = self.path.removeprefix("file://")
        return None if "://" in path else path


class Privacy(_Section):
    """[privacy]: rho to spend, or max_rho not to exceed, both for all rows of a person together;
    neither: least rho that meets every target. delta: at which epsilon is reported.
    """

    rho: Positive | None = None
    max_rho: Positive | None = None
    delta: Probability = 1e-9


class Budget(_Section):
    """[ledger]: the file, and the whole budget for these people: rho, or epsilon and delta."""

    path: str = Field(min_length=1)
    rho: Positive | None = None
    epsilon: Positive | None = None
    delta: Probability | None = None

    @property
    def amount(self) -> dict[str, float | None]:
        """The budget, as keywords of `fitplug.Ledger`."""
        return {"rho": self.rho, "epsilon": self.epsilon, "delta": self.delta}

    @property
    def total(self) -> float:
        """The whole budget in rho. Raises BudgetError for epsilon and delta out of range."""
        if self.epsilon is None or self.delta is None:
            assert self.rho is not None
            return self.rho
        return rho_at(self.epsilon, self.delta)


class Output(_Section):
    """[output]: the folder, and the confidence of intervals for groups without one of their own.
    spreadsheet_safe: whether CSV tables have an apostrophe before what begins as a formula does.
    """

    path: str = Field(default="release/", min_length=1)
    confidence: float = Field(default=0.95, ge=LEAST_CONFIDENCE, lt=1)
    spreadsheet_safe: bool = False


class Published(_Section):
    """[about]: what only the publisher knows of the release, for reviewers; see `fitplug.About`."""

    name: str | None = None
    curators: list[str] = []
    description: str | None = None
    intended_use: str | None = None
    region: str | None = None
    sector: Literal[
        "Technology", "Healthcare", "Education", "Government", "Energy", "Finance", None
    ] = None
    unit: str = Field(default="person", min_length=1)
    actors: str | None = None
    preprocessing: str | None = None
    sources: str | None = None
    notes: str | None = None
    authors: list[str] = []

    @property
    def about(self) -> About:
        """As the core has it."""
        lists = {"curators": tuple(self.curators), "authors": tuple(self.authors)}
        return About(**{**self.model_dump(), **lists})


class Search(_Section):
    """[design]: what the optimizer makes least and when it may stop; see `fitplug.design`."""

    tolerance: float = Field(default=1e-4, ge=1e-9, lt=1)
    max_iterations: int = Field(default=2000, ge=1)
    solver: Literal["dual", "sm2"] = "dual"
    refine: bool = True
    total_error_weight: float = Field(default=0.0, ge=0, le=LARGEST_WEIGHT)


class _Document(_Section):
    data: Data
    domain: dict[str, Any] = Field(min_length=1)
    query: list[dict[str, Any]] = Field(min_length=1)
    privacy: Privacy = Privacy()
    ledger: Budget | None = None
    output: Output = Output()
    about: Published = Published()
    design: Search = Search()


@dataclass(frozen=True)
class Spec:
    """A spec file, checked. Paths in it are relative to the file."""

    path: Path
    workload: Workload
    data: Data
    privacy: Privacy
    ledger: Budget | None
    output: Output
    about: Published
    design: Search

    def resolve(self, path: str) -> Path:
        return self.path.parent / path

    @property
    def source(self) -> str:
        """What to count; a string, as it may be a glob. Brackets in this file's folder are not.
        A URL is left as it is.
        """
        path = self.data.local
        if path is None:
            return self.data.path
        if glob.has_magic(path):
            return str(Path(glob.escape(str(self.path.parent))) / path)
        return str(self.resolve(path))

    @property
    def output_dir(self) -> Path:
        return self.resolve(self.output.path)


def load(path: Path) -> Spec:
    """Read a spec file. Raises SpecError: one sentence with file, key, value and remedy."""
    written = _toml(path)
    if not written.keys() & _Document.model_fields.keys():
        raise SpecError(
            f"{path} is no spec: it has none of the sections {', '.join(_Document.model_fields)}; "
            "fitplug init makes one"
        )
    try:
        document = _Document.model_validate(written)
    except ValidationError as error:
        raise SpecError(f"{path}: {_sentence(error)}") from None
    folder, rows_at = path.parent, document.data.local
    try:
        check_public(document.domain, folder, rows_at)
        domain = Domain.from_spec(codebooks.filled_in(document.domain, folder))
    except FitplugError as error:
        raise SpecError(f"{path}: [domain] {error}") from None
    for name in domain.names:
        if name in _RESERVED:
            raise SpecError(
                f"{path}: [domain] attribute {name!r} has the name of a key or a result column; "
                "rename the column"
            )
    if document.privacy.rho is not None and document.privacy.max_rho is not None:
        raise SpecError(
            f"{path}: [privacy] has both rho and max_rho; give rho to spend it, or max_rho "
            "to stay below it"
        )
    if document.ledger is not None:
        _check_budget(path, document.ledger)
    try:
        for entry in document.query:
            tables = {key: value for key, value in entry.items() if isinstance(value, dict)}
            check_public(tables, folder, rows_at)
        names = [str(entry["name"]) for entry in document.query if "name" in entry]
        groups = [
            _group(number, entry, domain, folder, names)
            for number, entry in enumerate(document.query, 1)
        ]
        workload = Workload(domain, groups)
    except FitplugError as error:
        raise SpecError(f"{path}: {error}") from None
    person = document.data.person
    if person is not None and person in workload.attributes:
        raise SpecError(
            f"{path}: [data] person = {person!r} identifies persons, so no query may name it; "
            "leave it out of the queries or name another column of persons"
        )
    try:
        filters = filters_of(document.data.where)
        check_rows(document.data.weight, filters, workload.attributes, person)
    except FitplugError as error:
        raise SpecError(f"{path}: [data] {error}") from None
    return Spec(
        path=path,
        workload=workload,
        data=document.data,
        privacy=document.privacy,
        ledger=document.ledger,
        output=document.output,
        about=document.about,
        design=document.design,
    )


def _check_budget(path: Path, ledger: Budget) -> None:
    given = [name for name, value in ledger.amount.items() if value is not None]
    if not given:
        raise SpecError(
            f"{path}: [ledger] rho is missing; add it, or epsilon and delta, the whole budget"
        )
    if given not in (["rho"], ["epsilon", "delta"]):
        raise SpecError(
            f"{path}: [ledger] has {' and '.join(given)}; give rho alone, or epsilon and delta"
        )
    try:
        _ = ledger.total
    except FitplugError as error:
        raise SpecError(f"{path}: [ledger] {error}") from None


def _toml(path: Path) -> dict[str, Any]:
    text = text_of(path, "spec file", "a TOML file", SpecError)
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SpecError(f"{path}: is not valid TOML: {_told(str(error))}") from None
    except (ValueError, RecursionError):  # numbers of thousands of digits, lists in lists
        raise SpecError(f"{path}: is not valid TOML") from None


_TOLD = {
    "Cannot declare": "a table is there twice",
    "Cannot mutate": "a table is there twice",
    "Cannot overwrite a value": "a key is there twice",
    "Cannot redefine": "a table is there twice",
    "Duplicate": "a key is there twice",
    "Expected '='": "a key needs = and a value",
    "Expected ']'": "a table needs ] after its name",
    "Expected ']]'": "a table needs ]] after its name",
    "Expected newline": "the line goes on after its value",
    "Invalid date": "this is no date or time",
    "Invalid initial character": "this is no key",
    "Invalid statement": "this is no key and no table",
    "Invalid value": "this is no value; strings go in quotes",
    "Unclosed array": "a list needs ]",
    "Unclosed inline table": "a table needs }",
    "Unescaped": "a \\ in a string is written twice",
    "Unterminated string": "a string needs its second quote",
}


def _told(error: str) -> str:
    """What a parser of TOML says, in words that cannot quote the file: that may be another than was
    meant, the records themselves for instance.
    """
    place = re.search(r"\(at (line [0-9]+, column [0-9]+|end of document)\)$", error)
    known = (told for start, told in _TOLD.items() if error.startswith(start))
    return next(known, "it cannot be read") + (f", at {place[1]}" if place else "")


def _group(
    number: int,
    entry: Mapping[str, Any],
    domain: Domain,
    folder: Path,
    names: Sequence[str],
) -> UnboundQueryGroup:
    name = entry.get("name")
    where = f"[[query]] {number}" if name is None else f"[[query]] {name!r}"
    factors: dict[str, Any] = {}
    for key, value in entry.items():
        if key in ("name", targetfiles.KEY, *TARGET_KEYS):
            continue
        if key not in domain:
            known = ("name", targetfiles.KEY, *TARGET_KEYS, *domain.names)
            raise WorkloadError(
                f"{where}: {key!r} is no attribute of the domain and no key of a query; "
                f"{suggest_nearest(key, known)}"
            )
        try:
            factors[key] = _factor(key, value, domain, folder)
        except WorkloadError as error:
            raise WorkloadError(f"{where}: {key}: {error}") from None
    given = {key: entry[key] for key in TARGET_KEYS if key in entry}
    if targetfiles.KEY in entry:
        file = entry[targetfiles.KEY]
        if given or not isinstance(file, str) or not isinstance(name, str):
            raise WorkloadError(
                f"{where}: targets must be the path of a CSV file, the group must have a name, and "
                f"none of {', '.join(TARGET_KEYS)} goes with it"
            )
        given = targetfiles.read(folder / file, name, factors, domain, names)
    return queries(factors, name=name, **given)


def _factor(name: str, value: Any, domain: Domain, folder: Path) -> Any:
    if isinstance(value, Mapping):
        kinds = ("ranges", "rows", crosswalks.KEY)
        for key in value:
            if key not in kinds:
                raise WorkloadError(f"unknown key {key!r}; {suggest_nearest(key, kinds)}")
        if len(value) != 1:
            found = " and ".join(value) or "{}"
            raise WorkloadError(f"{found} is no query; write one of {', '.join(kinds)}")
        if "ranges" in value:
            return ranges(value["ranges"])
        if "rows" in value:
            return rows(value["rows"])
        return crosswalks.rows_of(name, domain[name], value[crosswalks.KEY], folder)
    if isinstance(value, list) and value and all(isinstance(entry, str) for entry in value):
        raise WorkloadError(
            'a list here is a matrix of numbers; to ask for every value write "identity", and for '
            "sets of values { rows = { LABEL = [VALUE, ...] } }"
        )
    return value  # a kind by name, or the rows of a matrix


def _sentence(error: ValidationError) -> str:
    # A misspelt key is also a missing one: the misspelling says more.
    errors = sorted(error.errors(include_url=False), key=lambda e: e["type"] != "extra_forbidden")
    first = errors[0]
    place = [str(part) for part in first["loc"]]
    where = f"[{place[0]}] {'.'.join(place[1:])}".rstrip()
    section = _Document.model_fields.get(place[0])
    if first["type"] == "extra_forbidden":
        known = _keys(section) if section and len(place) > 1 else list(_Document.model_fields)
        return f"unknown key {where}; {suggest_nearest(place[-1], known)}"
    if first["type"] == "missing":
        return f"{where} is missing; add it"
    if place[0] == "query" and len(place) < 3:
        return f"{where} must be a list of tables; write [[query]] before each"
    if place == ["domain"] and first["type"] == "too_short":
        return f'{where} is empty; write what values each attribute has, such as SEX = ["1", "2"]'
    if section and first["type"] in ("model_type", "dict_type", "model_attributes_type"):
        return f"{where} must be a table, with keys such as: {', '.join(_keys(section))}"
    message = first["msg"].removeprefix("Input ").rstrip(".")
    if place[:2] == ["data", "storage_options"]:  # may hold credentials
        return f"{where} {message}"
    return f"{where} = {first['input']!r} {message}"


def _keys(section: FieldInfo) -> list[str]:
    options = getattr(section.annotation, "__args__", (section.annotation,))
    return [key for option in options for key in getattr(option, "model_fields", ())]
