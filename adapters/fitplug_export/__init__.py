"""Releases in the formats of other tools: SDMX, data packages, xarray and mbi.

All of it is post-processing of public numbers, and costs no privacy.
"""

from fitplug_export.data_package import write_data_package
from fitplug_export.grids import to_xarray
from fitplug_export.mbi_measurements import MbiMeasurements, to_mbi
from fitplug_export.sdmx import write_sdmx

__all__ = ["MbiMeasurements", "to_mbi", "to_xarray", "write_data_package", "write_sdmx"]


def __dir__() -> list[str]:
    """List the public names, so that completion shows no modules that are not for users."""
    return ["__doc__", "__file__", "__name__", "__path__", *__all__]
