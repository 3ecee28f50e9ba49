"""Known charges: whether a ledger has those that lie where a release would go.

A ledger that was put back from an older copy does not have its later charges. A release that was
made since then, or answers of it that are staged, name a charge that is missing in the ledger. Then
nothing may be drawn into their place, which is found before anything is charged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable

from fitplug.errors import LedgerError
from fitplug.files import LocalPlace, Place
from fitplug.ledger import Entry, Ledger
from fitplug.release import read_charge
from fitplug_opendp.folder_checks import report_write_errors
from fitplug_opendp.staged_answers import label_charge

_LABEL = r"\d+-[0-9a-f]{12}-[0-9a-f]{8}"
_STAGED = re.compile(rf"({_LABEL})(?:\.[0-9a-f]{{8}})?\.parts")


def check_charges_are_known(ledger: Ledger, place: Place, labels: Collection[str] = ()) -> None:
    """Check that a ledger has the charges of what lies where a release would go.

    Args:
        ledger: The ledger.
        place: The release folder, which need not exist.
        labels: The labels of answers that are staged inside it.

    Raises:
        LedgerError: A charge is not in the ledger, or the ledger cannot be read.
    """
    unknown = find_unknown_charge(ledger.entries, place, labels)
    if unknown is not None:
        what, number = unknown
        raise LedgerError(
            f"{what} charged as number {number}, which the ledger {ledger.path} does not have, as "
            "it is an older copy or another ledger: nothing was charged or drawn; put back the "
            "newest copy of the ledger that was charged, or name another folder"
        )


def find_unknown_charge(
    list_entries: Callable[[], Iterable[Entry]], place: Place, labels: Collection[str] = ()
) -> tuple[str, int] | None:
    """Find a charge of what lies where a release would go that is not among some entries.

    Args:
        list_entries: Lists the entries of a ledger. It is called when the place was looked at, as
            what another process puts there is in the ledger before.
        place: The release folder, which need not exist.
        labels: The labels of answers that are staged inside it.

    Returns:
        What lies there, up to "that was", and the number of its charge; None if all are known.
    """
    held, staged = read_charge(place), [*labels, *_list_staged(place)]
    known = list(list_entries())
    if held is not None and (held.id, held.time) not in {(own.id, own.time) for own in known}:
        return f"{place} holds a release that was", held.id
    of_known = {label_charge(own.plan_digest, own) for own in known if own.plan_digest}
    for label in staged:
        if re.fullmatch(_LABEL, label) and label not in of_known:
            number = int(label.partition("-")[0])
            return f"answers are staged for {place}, in an unfinished release that was", number
    return None


def is_held(place: Place, entry: Entry) -> bool:
    """Return whether a folder holds the release of a charge."""
    held = read_charge(place)
    return held is not None and (held.id, held.time) == (entry.id, entry.time)


def _list_staged(place: Place) -> list[str]:
    """List the labels of charged answers that are staged beside a local release folder."""
    if not isinstance(place, LocalPlace) or not place.path.parent.is_dir():
        return []
    with report_write_errors(place.path, "nothing was charged; make what is beside it readable"):
        names = [path.name for path in place.path.parent.iterdir()]
    prefix = f".{place.path.name}."
    found = (_STAGED.fullmatch(n.removeprefix(prefix)) for n in names if n.startswith(prefix))
    return sorted(match[1] for match in found if match)
