"""Uses of OpenDP's internals, which a new version of OpenDP may break.

This module imports OpenDP, and has every use of it that goes beyond OpenDP's documentation. Each
function has one such use, and its comment gives the reason. `tests/opendp/test_compat.py` fails if
a version of OpenDP changes one of them, and names the function to adapt.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

_FEATURES_LOCK = threading.Lock()


def import_opendp() -> ModuleType:
    """Import OpenDP's prelude.

    Returns:
        The module `opendp.prelude`.

    Raises:
        ImportError: OpenDP is not installed; the message names the extra to install.
    """
    try:
        import opendp.prelude as dp
    except ImportError:
        raise ImportError(
            'OpenDP is not installed. Install it with: pip install "fitplug[opendp]"'
        ) from None
    return dp


def is_feature_enabled(feature: str) -> bool:
    """Return whether a feature of OpenDP, such as "contrib", is switched on."""
    # OpenDP documents how to switch features on and off, and `assert_features`, which raises an
    # error. A call that restores a feature must ask without an error.
    from opendp.mod import GLOBAL_FEATURES

    return feature in GLOBAL_FEATURES


@contextmanager
def enable_contrib() -> Iterator[None]:
    """Switch OpenDP's feature "contrib" on for the length of the block."""
    dp = import_opendp()
    with _FEATURES_LOCK:  # OpenDP has one set of features for all threads
        was_enabled = is_feature_enabled("contrib")
        dp.enable_features("contrib")
        try:
            yield
        finally:
            if not was_enabled:
                dp.disable_features("contrib")


def make_partial_constructor(constructor: Callable[[Any, Any], Any]) -> Any:
    """Make the object that `>>` completes with the input domain and metric on its left side.

    Args:
        constructor: A function of an input domain and an input metric.

    Returns:
        An object like those of OpenDP's own `then_` functions.
    """
    # OpenDP has no public way to write a `then_` function outside its own modules.
    from opendp.mod import _PartialConstructor

    return _PartialConstructor(constructor)


def make_empty_frame(domain: Any) -> Any:
    """Make a Polars LazyFrame without rows that has the columns of a lazyframe_domain."""
    # A LazyFrameDomain has no public attribute with its columns and their types.
    from opendp.domains import _lazyframe_from_domain

    return _lazyframe_from_domain(domain)


def cast_measure(measurement: Any, measure: Any, d_out: Any) -> Any:
    """Cast a measurement to an output measure, as OpenDP's Context API casts it.

    Args:
        measurement: A measurement under zCDP.
        measure: The wanted output measure; None for the measurement's own.
        d_out: The privacy loss in the wanted measure; its delta is used for the cast.

    Returns:
        The measurement under the wanted measure.
    """
    # The loss must be compared after exactly the cast that the Context API applies to the result.
    from opendp.context import _cast_measure

    return _cast_measure(measurement, measure, d_out)


def register_constructor(name: str, constructor: Callable[..., Any]) -> None:
    """Register a constructor in OpenDP's Context API, unless it is registered already.

    Args:
        name: The name of the method that queries get.
        constructor: A function whose docstring differs from those of all other constructors.

    Raises:
        ValueError: Another constructor has this name.
    """
    # `opendp.context.register` raises an error for every name that is taken, even by this
    # constructor, and no public function shows which constructor has a name. OpenDP registers a
    # wrapper, which has the docstring of the function that it wraps.
    from opendp.context import constructors, register

    if name not in constructors:
        register(constructor, name)
        return
    registered, _ = constructors[name]
    if not (registered.__doc__ or "").startswith(str(constructor.__doc__)):
        raise ValueError(f"OpenDP's Context API already has another constructor {name!r}")


def add_frame_method(name: str, method: Callable[..., Any]) -> None:
    """Add a method to the queries on LazyFrames of OpenDP's Context API.

    Args:
        name: The name of the method; Polars' LazyFrame must not have it.
        method: A function whose first argument is the query.

    Raises:
        ValueError: Queries on LazyFrames have another method of this name.
    """
    # A LazyFrameQuery passes every attribute on to Polars, and never looks for registered
    # constructors. A method of the class itself is found if Polars has no such attribute.
    from opendp.extras.polars import LazyFrameQuery

    present = getattr(LazyFrameQuery, name, method)
    if present is not method:
        raise ValueError(f"OpenDP's queries on LazyFrames already have another method {name!r}")
    setattr(LazyFrameQuery, name, method)


def split_frame_query(query: Any) -> tuple[Any, Any]:
    """Return the Query and the Polars plan (a LazyFrame without data) in a LazyFrameQuery."""
    # Attribute access on the query leads to Polars, so both are read as OpenDP's own `resolve`
    # reads them.
    inner = object.__getattribute__(query, "_query")
    return inner, object.__getattribute__(query, "polars_plan")


def get_query_chain(query: Any) -> Any:
    """Return the chain of a Query: the pair (domain, metric) of a query without steps."""
    # The input space of a query is in no public attribute.
    return query._chain
