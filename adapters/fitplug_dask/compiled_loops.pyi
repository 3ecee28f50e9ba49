from fitplug_dask.numpy_loops import increment as increment
from fitplug_dask.numpy_loops import increment_pairs as increment_pairs
from fitplug_dask.numpy_loops import locate as locate
