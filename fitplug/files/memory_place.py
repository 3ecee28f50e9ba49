"""A place in the memory of this process, for answers that no file is to hold."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from fitplug.files.places import Place


@dataclass(frozen=True, eq=False)
class MemoryPlace(Place):
    """A folder in the memory of this process.

    Attributes:
        prefix: The names of the folders above its files, each followed by a slash.
        contents: The content of each file of all these folders, in a tuple of one, by its whole
            name.
    """

    prefix: str = ""
    contents: dict[str, tuple[bytes]] = field(default_factory=dict, repr=False)

    def __str__(self) -> str:
        return f"memory of this process/{self.prefix}".rstrip("/")

    def join(self, name: str) -> MemoryPlace:
        return replace(self, prefix=f"{self.prefix}{name}/")

    def read(self, name: str) -> bytes:
        try:
            return self.contents[self.prefix + name][0]
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, "no such file", name) from None

    def list_sizes(self) -> Mapping[str, int]:
        start = len(self.prefix)
        names = [name[start:] for name in self.contents if name.startswith(self.prefix)]
        visible = [name for name in names if "/" not in name and not name.startswith(".")]
        return {name: len(self.read(name)) for name in visible}

    def create(self, name: str, content: bytes) -> bool:
        mine = (content,)
        return self.contents.setdefault(self.prefix + name, mine) is mine

    def replace(self, name: str, content: bytes) -> None:
        self.contents[self.prefix + name] = (content,)

    def remove(self, name: str) -> None:
        self.contents.pop(self.prefix + name, None)

    def remove_all(self) -> None:
        for name in [name for name in self.contents if name.startswith(self.prefix)]:
            del self.contents[name]
