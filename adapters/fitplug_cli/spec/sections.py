"""The sections of a spec file and their keys."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, GetPydanticSchema
from pydantic_core import core_schema

from fitplug.families import LARGEST_WEIGHT
from fitplug.ledger import make_budget
from fitplug.numeric import read_exact_number
from fitplug.plan import Plan
from fitplug.releases import About, DisplayRequest
from fitplug.workload import LEAST_CONFIDENCE

Positive: TypeAlias = Annotated[float, Field(gt=0, allow_inf_nan=False)]


def _read_amount(value: Any, check: Callable[[Any], float]) -> Fraction | None:
    """Read an amount exactly, after its float has passed the check."""
    check(float(value) if type(value) is Decimal else value)
    return read_exact_number(value)


_AMOUNT = core_schema.no_info_wrap_validator_function(
    _read_amount, core_schema.float_schema(gt=0, allow_inf_nan=False, strict=True)
)
Amount: TypeAlias = Annotated[Fraction, GetPydanticSchema(lambda *_: _AMOUNT)]
"""A budget or a cost in rho, exactly as written."""
Probability: TypeAlias = Annotated[float, Field(gt=0, lt=1)]
Location: TypeAlias = Annotated[str, Field(min_length=1, pattern=r"^[^\x00]*$")]
"""A path or a URL without null characters."""


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class DataSection(_Section):
    """[data]: the rows and how to read them.

    Attributes:
        path: The path or URL of the rows; None for a table of a database.
        connection: The URL of a database, which counts the rows. `${NAME}` in it is an environment
            variable.
        table: The table format at the path: "delta", "iceberg", or None for plain files; with
            `connection`, the table of the database.
        version: The version of a Delta table, or the snapshot of an Iceberg table; None for the
            current one.
        zone: The time zone that decides on which day a time with a zone falls.
        missing: For each column that some files lack, the value of their rows; "" is null.
        cluster: The address of a Dask scheduler whose workers count, or its scheduler file (.json).
        person: The column, or the columns together, that identify people. Counting keeps at most
            as many rows of each as the unit of privacy allows. Without it, fitplug does not check
            the number of rows.
        storage_options: Options of the store of a URL, such as credentials.
        weight: The column of how many people each row stands for.
        where: For each column that filters rows, the values to count.
    """

    path: Location | None = None
    connection: str | None = Field(default=None, min_length=1)
    table: str | None = Field(default=None, min_length=1)
    version: int | None = Field(default=None, ge=0)
    zone: str | None = Field(default=None, min_length=1)
    missing: dict[str, str | int | bool] = {}
    cluster: str | None = Field(default=None, min_length=1)
    person: Any = None
    storage_options: dict[str, Any] = Field(default={}, repr=False)
    weight: str | None = Field(default=None, min_length=1)
    where: Any = None

    @property
    def local_path(self) -> str | None:
        """The path of the rows in the local file system; None if they are elsewhere."""
        path = None if self.path is None else self.path.removeprefix("file://")
        return None if path is None or "://" in path else path


class PrivacySection(_Section):
    """[privacy]: the unit of privacy, and the cost for all rows of a person together.

    Without rho and max_rho, the release costs the least rho that meets every target.

    Attributes:
        unit: The unit of privacy, for `fitplug.workload.read_unit`. It has no default: only the
            publisher knows how many rows a person may have.
        rho: The rho to spend.
        max_rho: The largest rho that the targets may cost.
        delta: The delta at which epsilon is reported.
    """

    unit: dict[str, Any]
    rho: Amount | None = None
    max_rho: Amount | None = None
    delta: Probability = 1e-9


class LedgerSection(_Section):
    """[ledger]: the file and the total budget, as rho or as epsilon and delta.

    Attributes:
        path: The file.
        rho: The budget in rho of zCDP.
        epsilon: The budget at `delta`.
        delta: The delta of `epsilon`.
        any_noise: Whether a budget in epsilon also allows charges for other than Gaussian noise.
    """

    path: Location
    rho: Amount | None = None
    epsilon: Positive | None = None
    delta: Probability | None = None
    any_noise: bool = False

    @property
    def amount(self) -> dict[str, Any]:
        """The budget, as keywords of `fitplug.Ledger`."""
        names = "rho", "epsilon", "delta", "any_noise"
        return {name: getattr(self, name) for name in names}

    @property
    def exact_total(self) -> Fraction:
        """The total budget in rho, as in the ledger.

        Raises:
            BudgetError: If a number is out of range.
        """
        budget = make_budget(**self.amount)
        assert budget is not None
        return budget.total


class DisplaySection(_Section):
    """[output] display, where more is given than true.

    Attributes:
        totals: Known numbers that display tables keep, by table or expression; see
            `Release.integers`.
    """

    totals: dict[str, Any] = {}


class OutputSection(_Section):
    """[output]: where and how to write the release.

    Attributes:
        path: The folder of the release.
        confidence: The confidence of intervals of groups without their own.
        spreadsheet_safe: Whether CSV tables have an apostrophe before text that looks like a
            formula.
        parts: Whether to make and write the release in parts, on the workers of [data] cluster if
            there is one; None to let `is_in_parts` decide.
        storage_options: Options of the store of a URL, such as credentials.
        display: Whether to write display tables next to the unbiased ones, or with which totals.
        key_file: The key file of encrypted exact counts, for a series or a release in parts; None
            for one in the user's home folder.
    """

    path: Location = "release/"
    confidence: float = Field(default=0.95, ge=LEAST_CONFIDENCE, lt=1)
    spreadsheet_safe: bool = False
    parts: bool | None = None
    storage_options: dict[str, Any] = Field(default={}, repr=False)
    display: bool | DisplaySection = False
    key_file: str | None = Field(default=None, min_length=1)

    @property
    def display_request(self) -> DisplayRequest | None:
        """What display tables are written; None for none."""
        if isinstance(self.display, DisplaySection):
            return DisplayRequest(self.display.totals)
        return DisplayRequest() if self.display else None

    @property
    def is_url(self) -> bool:
        """Whether the path is a URL."""
        return "://" in self.path

    def is_in_parts(self, plan: Plan) -> bool:
        """Return whether the release of a plan is made in parts.

        If the spec does not say so, it is where the path is in a store or the plan is large.
        """
        from fitplug_opendp.release_files import is_large

        if self.parts is not None:
            return self.parts
        return self.is_url or is_large(plan)


class AboutSection(_Section):
    """[about]: information from the publisher for reviewers; see `fitplug.About`."""

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
        """The section as a `fitplug.About`."""
        lists = {"curators": tuple(self.curators), "authors": tuple(self.authors)}
        return About(**{**self.model_dump(), **lists})


class DesignSection(_Section):
    """[design]: what the optimizer minimises and when it stops; see `fitplug.design`."""

    tolerance: float = Field(default=2e-4, ge=1e-9, lt=1)
    max_iterations: int = Field(default=2000, ge=1)
    solver: Literal["dual", "sm2"] = "dual"
    refine: bool = True
    total_error_weight: float = Field(default=0.0, ge=0, le=LARGEST_WEIGHT)
    coverage: bool = False
    periods: str | None = None


class Document(_Section):
    """All sections of a spec file, as they are written.

    `ledger` has no default, because only the publisher may decide to release without a ledger,
    where nothing adds up the costs. It is None if the spec has `ledger = false`.
    """

    data: DataSection
    privacy: PrivacySection
    domain: dict[str, Any] = Field(min_length=1)
    query: list[dict[str, Any]] = Field(min_length=1)
    ledger: Annotated[LedgerSection | None, BeforeValidator(lambda v: None if v is False else v)]
    output: OutputSection = OutputSection()
    about: AboutSection = AboutSection()
    design: DesignSection = DesignSection()
