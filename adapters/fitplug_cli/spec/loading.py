"""Loading spec files: checking their sections and building their workload."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fitplug.counts import Source, check_weight, list_person_columns, make_filters
from fitplug.domain import Domain, get_codec
from fitplug.errors import FitplugError, WorkloadError, suggest_nearest
from fitplug.files import is_url
from fitplug.releases import RESULT_COLUMNS
from fitplug.workload import (
    AddRemove,
    ReplaceOne,
    UnboundQueryGroup,
    Unit,
    Workload,
    check_unit,
    queries,
    ranges,
    read_unit,
    subsets,
)
from fitplug_cli.inputs import (
    CROSSWALK_KEY,
    TARGETS_KEY,
    build_region_rows,
    check_files_are_public,
    read_domain,
    read_targets,
)
from fitplug_cli.spec.data_source import build_source
from fitplug_cli.spec.errors import (
    SpecError,
    is_quoted_number,
    read_document,
)
from fitplug_cli.spec.sections import (
    AboutSection,
    DataSection,
    DesignSection,
    Document,
    LedgerSection,
    OutputSection,
    PrivacySection,
)

TARGET_KEYS = ("variance", "std", "moe", "confidence", "simultaneous")
"""The keys of a group's target."""


def build_group(
    number: int,
    entry: Mapping[str, Any],
    domain: Domain,
    folder: Path,
    names: Sequence[str],
) -> UnboundQueryGroup:
    """Build the group of queries of a [[query]] table.

    Args:
        number: The number of the table in the spec, from 1, for errors.
        entry: The table.
        domain: The domain.
        folder: The folder that paths are relative to.
        names: The names of all groups of the spec.

    Raises:
        WorkloadError: If the table, or a file it names, is wrong.
    """
    name = entry.get("name")
    where = f"[[query]] {number}" if name is None else f"[[query]] {name!r}"
    factors: dict[str, Any] = {}
    for key, value in entry.items():
        if key in ("name", TARGETS_KEY, *TARGET_KEYS):
            continue
        if key not in domain:
            known = (*domain.names, "name", TARGETS_KEY, *TARGET_KEYS)
            raise WorkloadError(
                f"{where}: {key!r} is neither a key nor an attribute in [domain]. "
                f"{suggest_nearest(key, known)}"
            )
        try:
            factors[key] = _build_factor(key, value, domain, folder)
        except WorkloadError as error:
            raise WorkloadError(f"{where}: {key}: {error}") from None
    target = {key: entry[key] for key in TARGET_KEYS if key in entry}
    for key, value in target.items():
        if is_quoted_number(value):
            raise WorkloadError(f"{where}: {key} = {value!r} is text. Remove the quotes.")
    if TARGETS_KEY in entry:
        file = entry[TARGETS_KEY]
        if target:
            raise WorkloadError(
                f"{where}: 'targets' and {next(iter(target))!r} cannot be combined. Remove one of "
                "them."
            )
        if not isinstance(file, str) or not isinstance(name, str):
            raise WorkloadError(
                f"{where}: 'targets' needs 'name', and must be the path of a CSV file"
            )
        target = read_targets(folder / file, name, factors, domain, names)
    try:
        return queries(factors, name=name, **target)
    except WorkloadError as error:
        raise WorkloadError(name_place(str(error), where)) from None


def name_place(message: str, where: str = "[[query]]") -> str:
    """Rewrite the place of a query at the start of a message as a spec writes it.

    Args:
        message: A message of the core, which writes "query 'NAME'".
        where: The place of a query without a name.
    """
    if message.startswith(("query '", 'query "')):
        return f"[[query]] {message.removeprefix('query ')}"
    return re.sub(r"^query( \[[^:]*\])?(?=: )", where, message)


def _build_factor(name: str, value: Any, domain: Domain, folder: Path) -> Any:
    """Convert the value of an attribute's key for `fitplug.queries`."""
    if isinstance(value, Mapping):
        kinds = ("ranges", "rows", CROSSWALK_KEY)
        for key in value:
            if key not in kinds:
                raise WorkloadError(f"unknown key {key!r}. {suggest_nearest(key, kinds)}")
        if len(value) != 1:
            keys = " and ".join(value) or "{}"
            raise WorkloadError(
                f"a query must have exactly one of the keys {', '.join(kinds)}, not {keys}"
            )
        if "ranges" in value:
            return ranges(value["ranges"])
        if "rows" in value:
            return subsets(value["rows"])
        return build_region_rows(name, domain[name], value[CROSSWALK_KEY], folder)
    if isinstance(value, list) and value and all(isinstance(entry, str) for entry in value):
        raise WorkloadError(
            'a list of values is not a query. To count each value, write "identity".'
        )
    codec = get_codec(domain[name])
    levels, quantities = codec.levels, codec.quantities
    if value == "mean" and "mean" not in levels:
        raise WorkloadError(
            '"mean" is not a query. Use `fitplug estimate "a / b"` with a sum and a number of rows.'
        )
    if value == "sum" and "sum" not in (*levels, *quantities):
        raise WorkloadError(
            f'"sum" needs a measure. In [domain], write {name} = '
            "{ measure = [low, high], unit = ... }"
        )
    return value  # the name of a kind, or a matrix


_RESERVED = {"name", "group", TARGETS_KEY, *TARGET_KEYS, *RESULT_COLUMNS}
"""Names of keys and result columns, which no attribute may have."""


@dataclass(frozen=True)
class Spec:
    """A checked spec file. Its paths are relative to the file.

    Attributes:
        path: The file.
        workload: The workload of its [domain] and its [[query]] tables.
        unit: The unit of privacy that plans are designed for.
        source: The data as [data] describes them.
        data, privacy, ledger, output, about, design: The sections of these names; ledger is None
            if the spec says `ledger = false`.
    """

    path: Path
    workload: Workload
    unit: Unit
    source: Source
    data: DataSection
    privacy: PrivacySection
    ledger: LedgerSection | None
    output: OutputSection
    about: AboutSection
    design: DesignSection

    def resolve(self, path: str) -> Path:
        """Return the location of a path that the spec names."""
        return self.path.parent / path

    @property
    def output_dir(self) -> Path:
        """The folder of the release."""
        return self.resolve(self.output.path)

    @property
    def output_location(self) -> str:
        """The folder of the release, or its URL."""
        return self.output.path if self.output.is_url else str(self.output_dir)

    @property
    def key_file(self) -> str | None:
        """The key file of encrypted counts; None for one in the user's home folder."""
        named = self.output.key_file
        return named if named is None or is_url(named) else str(self.resolve(named))

    @property
    def ledger_path(self) -> Path | None:
        """The file of the ledger; None if the spec says `ledger = false`."""
        return None if self.ledger is None else self.resolve(self.ledger.path)


def load_spec(path: Path) -> Spec:
    """Read and check a spec file and the public files that it names.

    Raises:
        SpecError: If anything is wrong. The message names the file, the key and the fix.
    """
    return build_spec(path, read_document(path))


def build_spec(path: Path, document: Document) -> Spec:
    """Build the spec of a document that was read from a file, and read the files that it names.

    Raises:
        SpecError: If anything is wrong. The message names the file, the key and the fix.
    """
    try:
        return _build_spec(path, document)
    except FitplugError as error:
        raise SpecError(f"{path}: {error}") from None


@contextmanager
def _name_key(key: str) -> Iterator[None]:
    """Name a key of the spec in the errors of the block."""
    try:
        yield
    except FitplugError as error:
        raise SpecError(f"{key} {error}") from None


def _build_spec(path: Path, document: Document) -> Spec:
    """Build the spec of a document; errors do not name the file."""
    folder, data, privacy = path.parent, document.data, document.privacy
    with _name_key("[domain]"):
        document, columns = _split_columns(document)
        check_files_are_public(document.domain, folder, data.local_path)
        domain = read_domain(document.domain, folder)
        for name in domain.names:
            if name in _RESERVED:
                raise SpecError(
                    f"attribute {name!r} has a reserved name. Use another name, and name the "
                    "column with 'from'."
                )
    if privacy.rho is not None and privacy.max_rho is not None:
        raise SpecError("[privacy] rho and max_rho cannot be combined. Remove one of them.")
    if document.ledger is not None:
        with _name_key("[ledger]"):
            _check_budget(document.ledger)
    workload = build_workload(folder, document, domain)
    with _name_key("[data]"):
        source = build_source(folder, data, columns)
        _check_rows(source, workload)
        if source.person is not None and document.design.coverage:
            raise SpecError(
                "'person' and [design] coverage cannot be combined. Remove one of them."
            )
    with _name_key("[privacy] unit:"):
        unit = _read_unit(document, source, workload)
    return Spec(
        path=path,
        workload=workload,
        unit=unit,
        source=source,
        data=data,
        privacy=privacy,
        ledger=document.ledger,
        output=document.output,
        about=document.about,
        design=document.design,
    )


def _split_columns(document: Document) -> tuple[Document, dict[str, str]]:
    """Take the key `from` out of entries of [domain].

    Returns:
        The document without these keys, and the column of each attribute that had one.
    """
    columns, entries = {}, dict(document.domain)
    for name, entry in document.domain.items():
        if isinstance(entry, Mapping) and "from" in entry:
            entries[name] = {key: value for key, value in entry.items() if key != "from"}
            if not isinstance(entry["from"], str) or not entry["from"]:
                raise SpecError(f"attribute {name!r}: 'from' must be the name of a column")
            columns[name] = entry["from"]
    return document.model_copy(update={"domain": entries}), columns


def _check_budget(ledger: LedgerSection) -> None:
    """Raise FitplugError unless the budget is given once."""
    given = [name for name in ("rho", "epsilon", "delta") if ledger.amount[name] is not None]
    if given not in (["rho"], ["epsilon", "delta"]):
        raise SpecError("must have either rho, or both epsilon and delta")
    _ = ledger.exact_total


def build_workload(folder: Path, document: Document, domain: Domain) -> Workload:
    """Build the workload of the [[query]] tables of a document.

    Args:
        folder: The folder that paths are relative to.
        document: The document.
        domain: Its domain.

    Raises:
        SpecError: If a query is wrong. The message does not name the file.
    """
    groups: list[UnboundQueryGroup] = []
    try:
        for entry in document.query:
            tables = {key: value for key, value in entry.items() if isinstance(value, dict)}
            check_files_are_public(tables, folder, document.data.local_path)
        names = [str(entry["name"]) for entry in document.query if "name" in entry]
        groups = [
            build_group(number, entry, domain, folder, names)
            for number, entry in enumerate(document.query, 1)
        ]
        return Workload(domain, groups)
    except FitplugError as error:
        where = _find_wrong_query(domain, groups)
        raise SpecError(name_place(str(error), where)) from None


def _find_wrong_query(domain: Domain, groups: Sequence[UnboundQueryGroup]) -> str:
    """Find the place of the first group that does not fit the domain."""
    for number, group in enumerate(groups, 1):
        try:
            Workload(domain, [group])
        except FitplugError:
            return f"[[query]] {number}"
    return "[[query]]"


def _check_rows(source: Source, workload: Workload) -> None:
    """Raise FitplugError for columns of [data] that conflict with the workload."""
    for name in list_person_columns(source):
        if name in workload.attributes:
            raise SpecError(
                f"person = {name!r} must not be an attribute of a query. Remove this attribute "
                "from the queries."
            )
    check_weight(
        source.weight, make_filters(source.where), workload.attributes, list_person_columns(source)
    )


def _read_unit(document: Document, source: Source, workload: Workload) -> Unit:
    """Read the unit of privacy and check it against [domain] and [data]."""
    unit, person = read_unit(document.privacy.unit), list_person_columns(source)
    check_unit(unit, workload.domain)
    if person and isinstance(unit, ReplaceOne) and unit.within:
        raise SpecError(
            f"replace_one = {list(unit.within)} and [data] person cannot be combined. Set "
            "replace_one = []."
        )
    once_per = unit.once_per if isinstance(unit, AddRemove) else None
    if person and once_per not in (None, *workload.attributes):
        raise SpecError(f"once_per = {once_per!r} must be an attribute that a query uses")
    return unit
