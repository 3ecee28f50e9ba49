"""Ledgers that are put back from older copies, beside everything that was made since then.

A call is watched: a copy is taken of the folder before and after each write to the ledger. Then
each older ledger is put beside each later state of everything else, and the same call is made.
"""

from __future__ import annotations

import itertools
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import fitplug as fp
from fitplug.ledger import ReleaseCharges

LEDGER = "budget.db"
WRITES = ("begin", "record_draw", "record_publication")


class Copy(NamedTuple):
    """A copy of a folder.

    Attributes:
        ledger: The number of the copy of the ledger.
        path: The copy of all but the ledger.
    """

    ledger: int
    path: Path


class Copies:
    """The copies of the folder `root` that are taken during a call."""

    def __init__(self, root: Path, store: Path) -> None:
        self.root, self._store = root, store
        self.ledgers: list[Path] = []
        self.copies: list[Copy] = []
        fp.Ledger(root / LEDGER, rho=100.0)
        self._take_ledger()

    def watch(self, act: Callable[[], Any]) -> None:
        """Act, and take copies."""
        with pytest.MonkeyPatch.context() as patch:
            for name in WRITES:
                patch.setattr(ReleaseCharges, name, self._wrap(getattr(ReleaseCharges, name)))
            act()
        self._take()

    def restore(self) -> Iterator[Copy]:
        """Put each ledger beside each state of the rest that is as new or newer."""
        for number, copy in itertools.product(range(len(self.ledgers)), self.copies):
            if number <= copy.ledger:
                shutil.rmtree(self.root)
                shutil.copytree(copy.path, self.root, symlinks=True)
                shutil.copy(self.ledgers[number], self.root / LEDGER)
                yield Copy(number, copy.path)

    def _wrap(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def write(*given: Any, **keywords: Any) -> Any:
            self._take()
            done = real(*given, **keywords)
            self._take_ledger()
            self._take()
            return done

        return write

    def _take_ledger(self) -> None:
        path = self._store / f"{len(self.ledgers)}.db"
        source, target = sqlite3.connect(self.root / LEDGER), sqlite3.connect(path)
        source.backup(target)
        source.close()
        target.close()
        self.ledgers.append(path)

    def _take(self) -> None:
        path = self._store / f"tree-{len(self.copies)}"
        shutil.copytree(self.root, path, ignore=shutil.ignore_patterns(f"{LEDGER}*"), symlinks=True)
        self.copies.append(Copy(len(self.ledgers) - 1, path))


def read_ledger(root: Path) -> Any:
    """All that the ledger in a folder says."""
    ledger = fp.Ledger(root / LEDGER)
    return ledger.entries(), dict(ledger.stages())
