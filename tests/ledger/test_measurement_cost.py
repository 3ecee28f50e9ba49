"""What a ledger charges for an OpenDP measurement: OpenDP's own objects and numbers alone."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import opendp.prelude as dp
import pytest

import fitplug as fp
from fitplug.ledger.measurement_cost import evaluate_rho
from fitplug.privacy import check_delta, check_epsilon, read_rho

SPACE = dp.atom_domain(T=int), dp.absolute_distance(T=int)
ZCDP = dp.zero_concentrated_divergence()


@pytest.fixture(autouse=True)
def features() -> Iterator[None]:
    before = set(dp.GLOBAL_FEATURES) if hasattr(dp, "GLOBAL_FEATURES") else set()
    dp.enable_features("contrib", "honest-but-curious")
    yield
    dp.disable_features(*({"contrib", "honest-but-curious"} - before))


@pytest.fixture
def gaussian() -> Any:
    return dp.m.make_gaussian(*SPACE, scale=2.0)


class LyingEq:
    """Equal to everything, and named as one likes."""

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return hash(ZCDP)

    def __str__(self) -> str:
        return "ZeroConcentratedDivergence"

    __repr__ = __str__


class Duck:
    """All that a measurement does, at next to no cost."""

    output_measure = LyingEq()

    def map(self, d_in: Any) -> float:
        return 1e-9

    def __call__(self, data: Any) -> Any:
        return data


def pretending() -> Any:
    """An object whose `__class__` says that it is OpenDP's."""

    class Pretending(Duck):
        @property
        def __class__(self) -> Any:
            return dp.Measurement

    return Pretending()


def subclassed() -> Any:
    class Subclass(dp.Measurement):  # type: ignore[misc]
        _type_ = dp.Measurement._type_

        def map(self, d_in: Any) -> float:
            return 1e-9

        @property
        def output_measure(self) -> Any:
            return ZCDP

    return Subclass()


def of_the_same_name() -> Any:
    made = type("Measurement", (Duck,), {"__module__": "opendp.mod"})
    return made()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    "make",
    [
        Duck,
        pretending,
        subclassed,
        of_the_same_name,
        lambda: SimpleNamespace(output_measure=ZCDP, map=lambda d_in: 1e-9),
        lambda: dp.Measurement,
        lambda: None,
        lambda: dp.t.make_count(dp.vector_domain(SPACE[0]), dp.symmetric_distance()),
    ],
    ids=["duck", "pretending", "subclass", "same name", "namespace", "class", "None", "transform"],
)
def test_what_is_no_measurement_of_opendp_is_refused(make: Any, tmp_path: Path) -> None:
    ledger = fp.Ledger(tmp_path / "budget.db", rho=1.0)
    with pytest.raises(fp.InputError, match="must be an OpenDP measurement"):
        ledger.charge_measurement(make(), 1, what="x")
    assert ledger.entries() == ()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_empty_measurement_is_refused() -> None:
    with pytest.raises(fp.InputError, match="is empty"):
        evaluate_rho(dp.Measurement(), 1)


def test_measures_that_only_have_the_name_are_refused() -> None:
    named = dp.user_divergence("ZeroConcentratedDivergence")
    cheap = dp.m.make_user_measurement(
        *SPACE, named, function=lambda x: x, privacy_map=lambda d_in: 1e-9
    )
    assert str(cheap.output_measure) == str(ZCDP)
    with pytest.raises(fp.InputError, match=r"must be zero-concentrated divergence, not"):
        evaluate_rho(cheap, 1)


def test_attributes_put_on_a_measurement_change_nothing(gaussian: Any) -> None:
    honest = gaussian.map(1)
    gaussian.map = lambda d_in: 1e-9
    gaussian.__dict__["output_measure"] = LyingEq()
    assert evaluate_rho(gaussian, 1) == honest == 0.125
    laplace = dp.m.make_laplace(*SPACE, scale=2.0)
    laplace.__dict__["output_measure"] = LyingEq()
    with pytest.raises(fp.InputError, match=r"must be zero-concentrated divergence, not"):
        evaluate_rho(laplace, 1)


def test_a_measurement_of_ones_own_in_opendp_is_a_measurement() -> None:
    own = dp.m.make_user_measurement(
        *SPACE, ZCDP, function=lambda x: x, privacy_map=lambda d_in: d_in / 8
    )
    assert evaluate_rho(own, 2) == 0.25


class Cheap(float):
    """Compares, divides and prints as much less than it is."""

    def __float__(self) -> float:
        return 1e-9

    def __lt__(self, other: Any) -> bool:
        return False

    def as_integer_ratio(self) -> tuple[int, int]:
        return 1, 10**9


class CheapFraction(Fraction):
    def as_integer_ratio(self) -> tuple[int, int]:
        return 1, 10**9


class CheapInt(int):
    def as_integer_ratio(self) -> tuple[int, int]:
        return 1, 10**9

    def __index__(self) -> int:
        return 0


class Ratio:
    def as_integer_ratio(self) -> tuple[int, int]:
        return 1, 10**9


def test_numbers_of_numpy_are_what_they_are(gaussian: Any) -> None:
    for two in (2, np.int64(2), np.int8(2), np.uint32(2)):
        assert evaluate_rho(gaussian, two) == gaussian.map(2)
    wide = dp.m.make_gaussian(
        dp.vector_domain(dp.atom_domain(T=float, nan=False)), dp.l2_distance(T=float), scale=2.0
    )
    for half in (0.5, np.float64(0.5), np.float32(0.5)):
        assert evaluate_rho(wide, half) == wide.map(0.5)


@pytest.mark.parametrize(
    "d_in",
    [CheapInt(2), Cheap(2.0), Fraction(2), True, "2", None, [2], np.array(2), np.nan, np.inf,
     (2, CheapInt(2)), CheapFraction(2), np.bool_(True), np.longdouble(2)],
)  # fmt: skip
def test_distances_of_other_kinds_are_refused(gaussian: Any, d_in: Any) -> None:
    with pytest.raises(fp.InputError, match="d_in must be a finite number"):
        evaluate_rho(gaussian, d_in)


@pytest.mark.parametrize("rho", [0.0, -1.0, float("nan"), float("inf"), 1, None, "1", Cheap(0.5)])
def test_costs_that_are_no_float_above_0_are_refused(rho: Any) -> None:
    own = dp.m.make_user_measurement(
        *SPACE, ZCDP, function=lambda x: x, privacy_map=lambda d_in: rho
    )
    try:
        found = evaluate_rho(own, 1)
    except fp.InputError:
        return
    # OpenDP has made a float of it, of the value that Python's C API finds.
    assert type(found) is Fraction
    assert found == 0.5 or found == 1.0


@pytest.mark.parametrize(
    "rho", [0.25, Fraction(1, 4), Decimal("0.25"), np.float64(0.25), np.float32(0.25)]
)
def test_ledgers_charge_numbers_of_known_types_exactly(tmp_path: Path, rho: Any) -> None:
    ledger = fp.Ledger(tmp_path / "budget.db", rho=1)
    assert ledger.charge(rho, what="x").rho == Fraction(1, 4)


@pytest.mark.parametrize(
    "rho",
    [Cheap(0.5), CheapFraction(1, 2), CheapInt(1), Ratio(), True, "0.5", np.array(0.5),
     np.longdouble(0.5), Decimal("nan"), Decimal("inf"), np.float64("nan"), 0.5j],
)  # fmt: skip
def test_ledgers_refuse_numbers_of_other_kinds(tmp_path: Path, rho: Any) -> None:
    ledger = fp.Ledger(tmp_path / "budget.db", rho=1.0)
    with pytest.raises(fp.BudgetError, match="finite number above 0"):
        ledger.charge(rho, what="x")
    with pytest.raises(fp.BudgetError, match="finite number above 0"):
        fp.Ledger(tmp_path / "other.db", rho=rho)
    assert ledger.spent == 0


@pytest.mark.parametrize("check", [read_rho, check_epsilon, check_delta])
def test_budgets_refuse_numbers_that_compare_as_others(check: Any) -> None:
    check(0.5)
    check(np.float64(0.5))
    for lie in (Cheap(0.5), CheapInt(1), CheapFraction(1, 2), True):
        with pytest.raises(fp.BudgetError):
            check(lie)


def test_without_opendp_nothing_is_a_measurement(tmp_path: Path) -> None:
    code = (
        "import sys, fitplug as fp\n"
        "assert 'opendp' not in sys.modules\n"
        "try: fp.Ledger(sys.argv[1], rho=1.0).charge_measurement(object(), 1, what='x')\n"
        "except fp.InputError as error: print(error)\n"
        "assert 'opendp' not in sys.modules\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "budget.db")],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "must be an OpenDP measurement, not object" in done.stdout
