"""Domains: which attributes there are, and which cells each has."""

from fitplug.domain.attribute import Attribute as Attribute, Codec as Codec, get_codec as get_codec
from fitplug.domain.categories import (
    Categories as Categories,
    CategoriesCodec as CategoriesCodec,
    CodePrefix as CodePrefix,
)
from fitplug.domain.dates import Dates as Dates, DatesCodec as DatesCodec
from fitplug.domain.days import (
    BLANKS as BLANKS,
    EPOCH as EPOCH,
    FORMATS as FORMATS,
    NULLS as NULLS,
    find_day as find_day,
    find_days as find_days,
    parse_day as parse_day,
    parse_moment as parse_moment,
)
from fitplug.domain.domain import (
    Domain as Domain,
    count_shares as count_shares,
    describe_measures as describe_measures,
    get_shape as get_shape,
    label_values as label_values,
    list_measures as list_measures,
    list_names_without_other as list_names_without_other,
    name_label_column as name_label_column,
    suggest_fewer_cells as suggest_fewer_cells,
)
from fitplug.domain.encoder import (
    MOST_NUMBER as MOST_NUMBER,
    OUTSIDE as OUTSIDE,
    TYPE_NAMES as TYPE_NAMES,
    Codes as Codes,
    Encoder as Encoder,
)
from fitplug.domain.hierarchy import Hierarchy as Hierarchy
from fitplug.domain.measure import (
    MOST_SHARES as MOST_SHARES,
    Measure as Measure,
    MeasureCodec as MeasureCodec,
)
from fitplug.domain.numbers import Bins as Bins, Integers as Integers
from fitplug.domain.spec_form import SpecForm as SpecForm
from fitplug.domain.texts import Texts as Texts
from fitplug.domain.value_lookup import ValueLookup as ValueLookup
