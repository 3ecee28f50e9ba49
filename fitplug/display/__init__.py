"""Display: numbers for people, HTML tables for notebooks, the style of plots."""

from fitplug.display.html import (
    DELTA,
    MOST_GROUPS,
    MOST_ROWS,
    MOST_TABLES,
    make_block,
    make_table,
    say_more,
    show_std,
)
from fitplug.display.numbers import above, below
from fitplug.display.plotting import (
    BLUE,
    GREY,
    INK,
    LETTER,
    LINE_COLOURS,
    MOST_BARS,
    ORANGE,
    Figure,
    drawing,
    label_powers,
    separate_thousands,
    shorten,
)

__all__ = [
    "BLUE",
    "DELTA",
    "GREY",
    "INK",
    "LETTER",
    "LINE_COLOURS",
    "MOST_BARS",
    "MOST_GROUPS",
    "MOST_ROWS",
    "MOST_TABLES",
    "ORANGE",
    "Figure",
    "above",
    "below",
    "drawing",
    "label_powers",
    "make_block",
    "make_table",
    "say_more",
    "separate_thousands",
    "shorten",
    "show_std",
]
