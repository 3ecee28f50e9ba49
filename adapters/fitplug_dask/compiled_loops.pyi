from fitplug_dask.numpy_loops import add_weights as add_weights
from fitplug_dask.numpy_loops import add_weights_of_pairs as add_weights_of_pairs
from fitplug_dask.numpy_loops import increment as increment
from fitplug_dask.numpy_loops import increment_pairs as increment_pairs
from fitplug_dask.numpy_loops import locate as locate
