"""Identifiers: texts that identify persons, each person spelled in one way.

Programs write one number in several ways: 7 and, in a column with nulls, 7.0; 007 where leading
zeros were kept; 1e+05 for 100000 in R. Taken for several persons, one person would keep several
times as many rows as the unit of privacy allows. So a whole number is the same identifier however
it is written, and blanks at either end do not count. Text that is empty or blank identifies nobody.
All other text is compared byte by byte: A7 and a7 are two persons.

The identifiers that may need another spelling are found by their first and last bytes, as most need
none.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fitplug.domain import BLANKS
from fitplug_dask.encoding import view_stretches

_WHOLE = r"^[+-]?[0-9]+(\.0*)?$"
_POWER = r"^\+?[0-9](\.[0-9]+)?e\+[0-9]{2}$"
"""How R and Python write large numbers. The plus sign is required: 1e5 may be a code."""


def _mark(characters: str) -> npt.NDArray[np.bool_]:
    marked = np.zeros(256, dtype=bool)
    marked[list(characters.encode())] = True
    return marked


_FIRST, _LAST, _PLUS = _mark(f"{BLANKS}+-0"), _mark(f"{BLANKS}.0"), _mark("+")


def find_unusual(column: Any) -> npt.NDArray[np.int64]:
    """Find the texts that `spell_identifiers` may change.

    Args:
        column: A compact Arrow array (n,) of text.

    Returns:
        The positions of these texts, and perhaps of others.
    """
    content, places = view_stretches(column)
    if not len(content):
        return np.arange(len(column))
    starts, ends = places[:-1], places[1:]
    first = content.take(starts, mode="clip")
    last, third = (content.take(ends - back, mode="clip") for back in (1, 3))
    return np.flatnonzero(_FIRST[first] | _LAST[last] | _PLUS[third] | (starts == ends))


def spell_identifiers(column: Any) -> Any:
    """Spell identifiers (n,) in one way; those of nobody become null."""
    # The functions for ASCII leave other bytes alone, whether they are UTF-8 or not.
    texts = column.cast(pa.large_binary()).view(pa.large_string())
    texts = _replace(pc.ascii_trim(texts, characters=BLANKS), _WHOLE, _spell_whole)
    texts = _replace(texts, _POWER, _spell_powers)
    return pc.if_else(pc.equal(pc.binary_length(texts), 0), None, texts)


def _replace(texts: Any, pattern: str, spell: Callable[[Any], Any]) -> Any:
    """Replace the texts (n,) that match a pattern by what `spell` makes of them."""
    matches = pc.match_substring_regex(texts, pattern).fill_null(False)
    if not pc.any(matches).as_py():
        return texts
    return pc.replace_with_mask(texts, matches, spell(texts.filter(matches)))


def _spell_whole(texts: Any) -> Any:
    """Spell whole numbers without a plus sign, a point, and zeros that mean nothing."""
    texts = pc.if_else(
        pc.match_substring(texts, "."),
        pc.ascii_rtrim(pc.ascii_rtrim(texts, characters="0"), characters="."),
        texts,
    )
    digits = pc.ascii_ltrim(pc.ascii_ltrim(texts, characters="+-"), characters="0")
    is_zero = pc.equal(pc.binary_length(digits), 0)
    signs = pc.if_else(pc.starts_with(texts, "-"), "-", "").cast(digits.type)
    signed = pc.binary_join_element_wise(signs, digits, pa.scalar("", digits.type))
    return pc.if_else(is_zero, "0", signed)


def _spell_powers(texts: Any) -> Any:
    """Spell whole numbers such as 1e+05 by their digits, and leave others as they are."""
    numbers = {text: Decimal(text) for text in texts.to_pylist()}
    spelled = [str(int(n)) if n == int(n) else text for text, n in numbers.items()]
    return pc.take(
        pa.array(spelled, texts.type), pc.index_in(texts, pa.array(list(numbers), texts.type))
    )
