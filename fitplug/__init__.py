"""fitplug: noise that is fit for use, at the least privacy cost."""

from fitplug.domain import Bins, Categories, Domain, Integers
from fitplug.tables import Tables

__all__ = ["Bins", "Categories", "Domain", "Integers", "Tables"]
