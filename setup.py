"""The one part of fitplug that is compiled: where there is no C compiler, NumPy does its work."""

from Cython.Build import cythonize
from setuptools import Extension, setup

(loops,) = cythonize(
    [Extension("fitplug_dask.compiled_loops", ["adapters/fitplug_dask/compiled_loops.pyx"])]
)
loops.optional = True  # only now: `cythonize` would lose it

setup(ext_modules=[loops])
