"""Display: numbers for people, HTML tables for notebooks, the style of plots."""

from fitplug.display.html import (
    MOST_GROUPS,
    MOST_ROWS,
    MOST_TABLES,
    SHOWN_DELTA,
    format_std_range,
    make_section,
    make_table,
    say_more,
)
from fitplug.display.numbers import (
    format_delta,
    format_down,
    format_percent_up,
    format_rho,
    format_up,
)
from fitplug.display.plotting import (
    BLUE,
    GREY,
    LETTER_WIDTH,
    LINE_COLOURS,
    MOST_BARS,
    ORANGE,
    Figure,
    label_powers,
    open_figure,
    separate_thousands,
    shorten,
)

__all__ = [
    "BLUE",
    "GREY",
    "LETTER_WIDTH",
    "LINE_COLOURS",
    "MOST_BARS",
    "MOST_GROUPS",
    "MOST_ROWS",
    "MOST_TABLES",
    "ORANGE",
    "SHOWN_DELTA",
    "Figure",
    "format_delta",
    "format_down",
    "format_percent_up",
    "format_rho",
    "format_std_range",
    "format_up",
    "label_powers",
    "make_section",
    "make_table",
    "open_figure",
    "say_more",
    "separate_thousands",
    "shorten",
]
