"""The tables and plots of a release. All of them are public."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fitplug.display import Figure
from fitplug.files import ArrowTable, Columns
from fitplug.releases import tables
from fitplug.releases.noisy_answers import NoisyAnswers, find_parted_tables
from fitplug.releases.plots import Kind, plot_release
from fitplug.releases.regions import Regions


class ReleaseTables(NoisyAnswers):
    """Noisy answers with a table and a plot of each group."""

    def to_arrow(
        self, name: str, *, confidence: float | None = None, simultaneous: bool | None = None
    ) -> ArrowTable:
        """Make an Arrow table of a group, with a row for each answer.

        The columns are the attributes, estimate, std, moe, lower, upper and confidence. The
        metadata describe the table. The intervals are the same as in `interval`.

        Args:
            name: The group.
            confidence: The confidence of the intervals. By default the confidence of the group's
                target, or 0.95 if the target has none.
            simultaneous: Whether all intervals of the group cover their exact answers at once; if
                None, as in the group's target.

        Raises:
            ImportError: pyarrow is not installed.
            KeyError: There is no such group.
            WorkloadError: The confidence is out of range, or an attribute has the same name as a
                column of results.

        Example:
            >>> release.to_arrow("sex x age").num_rows
            8
        """
        return tables.make_arrow(*self._make_table(name, confidence, simultaneous))

    def to_pandas(
        self, name: str, *, confidence: float | None = None, simultaneous: bool | None = None
    ) -> tables.PandasFrame:
        """Make the table of `to_arrow` as a pandas DataFrame, with the metadata as `attrs`.

        Example:
            >>> list(release.to_pandas("total").columns)
            ['estimate', 'std', 'moe', 'lower', 'upper', 'confidence']
        """
        return tables.make_pandas(*self._make_table(name, confidence, simultaneous))

    def to_polars(
        self, name: str, *, confidence: float | None = None, simultaneous: bool | None = None
    ) -> tables.PolarsFrame:
        """Make the table of `to_arrow` as a Polars DataFrame, without the metadata."""
        return tables.make_polars(self._make_table(name, confidence, simultaneous)[0])

    def _make_table(
        self, name: str, confidence: float | None, simultaneous: bool | None
    ) -> tuple[Columns, dict[str, str]]:
        """Make the columns of a group's table, and its metadata."""
        group = self.plan.workload[name]
        intervals = tables.choose_intervals(group, confidence, simultaneous)
        columns = tables.make_columns(self, group, intervals)
        return columns, tables.make_metadata(self, group, intervals)

    def iter_tables(self, name: str) -> Iterator[ArrowTable]:
        """Read the table of a group part by part.

        For a release in parts, these are the tables of its folder, of about a million rows each.
        Any other release has one part, the table of `to_arrow`.

        Args:
            name: The group.

        Yields:
            Arrow tables, which together have all rows of the group's table.

        Raises:
            ImportError: pyarrow is not installed.
            KeyError: There is no such group.
            InputError: A part is missing, damaged or was edited.

        Example:
            >>> [table.num_rows for table in release.iter_tables("sex x age")]
            [8]
        """
        if (tables := find_parted_tables(self)) is None:
            yield self.to_arrow(name)
        else:
            yield from tables.iterate(name)

    def plot(
        self,
        name: str,
        *,
        kind: Kind | None = None,
        regions: Regions | None = None,
        confidence: float | None = None,
        simultaneous: bool | None = None,
        ax: Any = None,
    ) -> Figure:
        """Plot the estimates of a group with their intervals.

        At most two attributes of the group may have more than one query. Attributes with one query,
        such as the sum of a measure, get no axis. A dark style of matplotlib gives a dark plot.

        Example:
            >>> release.plot("age by sex", kind="pyramid")  # doctest: +SKIP
            >>> release.plot("county", regions="counties.geojson")  # doctest: +SKIP

        Args:
            name: The group.
            kind: "lines", points or bands along the attribute with more rows; "bars", largest
                first unless the attribute is ordered; "pyramid", two rows of bars back to back;
                "grid", coloured cells without intervals; "map", regions without intervals. By
                default a map if there are `regions`, a grid for two attributes of many values,
                bars for one attribute without order, else lines.
            regions: The outlines of the regions that the labels name, as the path or content of
                GeoJSON, or (GeoJSON, property) with the property that holds the labels.
            confidence: As in `to_arrow`.
            simultaneous: As in `to_arrow`.
            ax: The axes of matplotlib to draw into. By default a new figure.

        Returns:
            The matplotlib Figure.

        Raises:
            ImportError: matplotlib is not installed.
            KeyError: There is no such group.
            WorkloadError: The group cannot be plotted in this way, a label has no region, or the
                confidence is out of range.
        """
        return plot_release(
            self,
            name,
            kind=kind,
            regions=regions,
            confidence=confidence,
            simultaneous=simultaneous,
            ax=ax,
        )
