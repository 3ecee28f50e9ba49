"""Exports of releases to SDMX, data packages, xarray and mbi.

These exports are post-processing of public numbers, and cost no privacy. `FitnessForUse` makes a
plan an algorithm for contingency tables in OpenDP.
"""

from typing import TYPE_CHECKING, Any

from fitplug_export.data_package import write_data_package
from fitplug_export.grids import to_xarray
from fitplug_export.mbi_measurements import MbiMeasurements, to_mbi
from fitplug_export.sdmx import write_sdmx

if TYPE_CHECKING:
    from fitplug_export.contingency_tables import FitnessForUse

__all__ = [
    "FitnessForUse",
    "MbiMeasurements",
    "to_mbi",
    "to_xarray",
    "write_data_package",
    "write_sdmx",
]


def __getattr__(name: str) -> Any:
    """Import `FitnessForUse`, which needs OpenDP, only when it is used."""
    if name == "FitnessForUse":
        from fitplug_export.contingency_tables import FitnessForUse

        return FitnessForUse
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return only the public names, so that completion does not list internal modules."""
    return ["__doc__", "__file__", "__name__", "__path__", *__all__]
