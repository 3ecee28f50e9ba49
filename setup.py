"""What pyproject.toml cannot say: the parts that are compiled, and static editable installs."""

import base64
import hashlib
import os
import shutil
import zipfile
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.editable_wheel import editable_wheel

ROOT = Path(__file__).resolve().parent


class StaticEditableWheel(editable_wheel):
    """`pip install -e` by a path entry that type checkers and editors can read.

    For packages under two roots setuptools installs an import hook, which they cannot.
    """

    def run(self) -> None:
        super().run()
        for wheel in Path(self.dist_dir).glob("*editable*.whl"):
            replace_hook(wheel, self.path_entries())

    def path_entries(self) -> list[Path]:
        """A folder of links to the packages alone, so that `import tests` finds no tests of ours;
        or their roots, where links to folders need rights that the user has not.
        """
        place_of = self.get_finalized_command("build_py").get_package_dir
        names = [name for name in self.distribution.packages if "." not in name]
        packages = [ROOT / place_of(name) for name in names]
        folder = ROOT / "build" / "editable"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        try:
            for package in packages:
                aimed_at = os.path.relpath(package, folder)
                (folder / package.name).symlink_to(aimed_at, target_is_directory=True)
        except OSError:
            return sorted({package.parent for package in packages})
        return [folder]


def replace_hook(wheel: Path, entries: list[Path]) -> None:
    """In a wheel by setuptools, put one .pth file of these entries in place of its hook."""
    with zipfile.ZipFile(wheel) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    kept = {name: held for name, held in files.items() if not name.startswith("__editable__")}
    (record,) = (name for name in kept if name.endswith(".dist-info/RECORD"))
    kept["__editable__.fitplug.pth"] = "".join(f"{entry}\n" for entry in entries).encode()
    lines = [
        f"{name},sha256={digest(held)},{len(held)}" for name, held in kept.items() if name != record
    ]
    kept[record] = "\n".join([*lines, f"{record},,", ""]).encode()
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, held in kept.items():
            archive.writestr(name, held)


def digest(held: bytes) -> str:
    """As the RECORD of a wheel writes it."""
    return base64.urlsafe_b64encode(hashlib.sha256(held).digest()).rstrip(b"=").decode()


loops = Extension("fitplug_dask.compiled_loops", ["adapters/fitplug_dask/compiled_loops.pyx"])

setup(ext_modules=cythonize([loops]), cmdclass={"editable_wheel": StaticEditableWheel})
