"""What earlier runs left where a release goes: the plan that was begun, and charges of ledgers.

A ledger that was put back from an older copy does not have its later charges. A release that was
made since then, or answers of it that are staged, name a charge that is missing in the ledger. Then
nothing may be drawn into their place, which is found before anything is charged.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path

from fitplug.errors import FitplugError, InputError, LedgerError
from fitplug.files import LocalPlace, Place
from fitplug.ledger import Entry, Ledger, hash_values
from fitplug.plan import Plan
from fitplug.release import PLAN, read_charge

RETRY = "the release is not finished: run the same again, which charges nothing more"
"""What to do after a failure that follows the charge."""


@contextmanager
def report_write_errors(directory: Path, remedy: str) -> Iterator[None]:
    """Turn an OSError in the block into a FitplugError that names the folder and the remedy."""
    try:
        yield
    except OSError as error:
        why = (error.strerror or "it cannot be written").lower()
        raise FitplugError(f"{directory}: {why}; {remedy}") from None


def encode_path(path: str | os.PathLike[str]) -> str:
    """Write an absolute path as ledgers keep it, with bytes that are no text replaced."""
    return os.fsencode(Path(path).absolute()).decode(errors="replace")


def find_kept_plan(ledger: Ledger, folder: Path | str, key: str | None) -> Plan | None:
    """Find the plan of a release that was begun before, as its run kept it.

    Another processor or another version of NumPy may design a plan that differs in its last
    digits. The ledger takes that for another plan, so a retry must use the plan that was kept.

    Args:
        ledger: The ledger that has the charge.
        folder: The release folder, or its URL.
        key: The key of the release. None finds an unfinished release without a key for the folder.

    Returns:
        The plan, from the folder or from beside the ledger; None if there is none.
    """
    output = encode_path(folder) if isinstance(folder, Path) else folder
    stages = ledger.stages()
    for entry in reversed(ledger.entries()):
        stage = stages.get(entry.id)
        if stage is None or stage.output is None or entry.key != key or not entry.plan_digest:
            continue
        if key is None and (stage.state == "published" or entry.output != output):
            continue
        beside = locate_kept_plan(ledger, entry.plan_digest, key, entry.output)
        for path in (Path(stage.output) / PLAN, beside):
            with suppress(InputError):
                plan = Plan.load(path)
                if plan.digest == entry.plan_digest:
                    return plan
    return None


def locate_kept_plan(ledger: Ledger, plan_digest: str, key: str | None, output: str | None) -> Path:
    """Return the path of the plan of an unfinished release, a hidden file beside its ledger.

    Args:
        ledger: The ledger.
        plan_digest: The digest of the plan.
        key: The key of the release.
        output: Where the release was to go when it was charged, as the ledger keeps it.
    """
    label = hash_values(plan_digest, key, output)[:16]
    return ledger.path.absolute().with_name(f".{ledger.path.name}.{label}.{PLAN}")


def remove_kept_plan(path: Path) -> None:
    """Remove a plan that was kept, and what killed processes left that were about to write it."""
    path.unlink(missing_ok=True)
    for left in path.parent.glob(f".{escape(path.name)}.*.partial"):
        left.unlink(missing_ok=True)


def label_files(plan: Plan, entry: Entry | None) -> str:
    """Build the label of a release's files from its charge and its plan."""
    return f"0-{plan.digest[:12]}" if entry is None else label_charge(plan.digest, entry)


def label_charge(plan_digest: str, entry: Entry) -> str:
    """Build the label of files of the release of a plan that was charged."""
    # A charge of the same number in another ledger differs in the hash.
    charge = hash_values(entry.id, entry.time, entry.what, entry.key)
    return f"{entry.id}-{plan_digest[:12]}-{charge[:8]}"


_LABEL = r"\d+-[0-9a-f]{12}-[0-9a-f]{8}"
_STAGED_NAME = re.compile(rf"({_LABEL})(?:\.[0-9a-f]{{8}})?\.parts")


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
    found = (_STAGED_NAME.fullmatch(n.removeprefix(prefix)) for n in names if n.startswith(prefix))
    return sorted(match[1] for match in found if match)
