"""Domains: which attributes there are, and which cells each has."""

from fitplug.domain.attribute import Attribute, Codec, get_codec
from fitplug.domain.categories import Categories, CategoriesCodec, CodePrefix
from fitplug.domain.dates import Dates, DatesCodec
from fitplug.domain.days import BLANKS, EPOCH, FORMATS, find_day, find_days, parse_day, parse_moment
from fitplug.domain.domain import (
    Domain,
    count_shares,
    describe_measures,
    get_shape,
    label_values,
    list_measures,
    list_names_without_other,
    name_label_column,
    suggest_fewer_cells,
)
from fitplug.domain.encoder import MOST_NUMBER, OUTSIDE, TYPE_NAMES, Codes, Encoder
from fitplug.domain.hierarchy import Hierarchy
from fitplug.domain.measure import MOST_SHARES, Measure, MeasureCodec
from fitplug.domain.numbers import Bins, Integers
from fitplug.domain.spec_form import SpecForm
from fitplug.domain.texts import Texts
from fitplug.domain.value_lookup import ValueLookup

__all__ = [
    "BLANKS",
    "EPOCH",
    "FORMATS",
    "MOST_NUMBER",
    "MOST_SHARES",
    "OUTSIDE",
    "TYPE_NAMES",
    "Attribute",
    "Bins",
    "Categories",
    "CategoriesCodec",
    "CodePrefix",
    "Codec",
    "Codes",
    "Dates",
    "DatesCodec",
    "Domain",
    "Encoder",
    "Hierarchy",
    "Integers",
    "Measure",
    "MeasureCodec",
    "SpecForm",
    "Texts",
    "ValueLookup",
    "count_shares",
    "describe_measures",
    "find_day",
    "find_days",
    "get_codec",
    "get_shape",
    "label_values",
    "list_measures",
    "list_names_without_other",
    "name_label_column",
    "parse_day",
    "parse_moment",
    "suggest_fewer_cells",
]
