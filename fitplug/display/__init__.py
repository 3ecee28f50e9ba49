"""Display: numbers for people, HTML tables for notebooks, the style of plots, progress."""

from fitplug.display.html import (
    MOST_GROUPS as MOST_GROUPS,
    MOST_ROWS as MOST_ROWS,
    MOST_TABLES as MOST_TABLES,
    SHOWN_DELTA as SHOWN_DELTA,
    format_std_range as format_std_range,
    make_section as make_section,
    make_table as make_table,
    say_more as say_more,
)
from fitplug.display.numbers import (
    format_delta as format_delta,
    format_down as format_down,
    format_excess as format_excess,
    format_percent_up as format_percent_up,
    format_rho as format_rho,
    format_up as format_up,
)
from fitplug.display.plotting import (
    BLUE as BLUE,
    GREY as GREY,
    LETTER_WIDTH as LETTER_WIDTH,
    LINE_COLOURS as LINE_COLOURS,
    MOST_BARS as MOST_BARS,
    ORANGE as ORANGE,
    Figure as Figure,
    add_polygons as add_polygons,
    label_powers as label_powers,
    open_figure as open_figure,
    scale_colours as scale_colours,
    separate_thousands as separate_thousands,
    shorten as shorten,
)
from fitplug.display.progress import (
    Progress as Progress,
    Report as Report,
    accumulate as accumulate,
    choose_report as choose_report,
    ignore as ignore,
)
