"""The mechanism: an integer strategy matrix, its exact cost, its answers and estimates."""

from fitplug.mechanism.answers import exact_answers, may_be_clamped
from fitplug.mechanism.attribute_matrices import AttributeMatrix, DenseMatrix
from fitplug.mechanism.basis import MAX_COEFFICIENT, Basis, cell_classes, choose_basis, right_solve
from fitplug.mechanism.contrasts import Contrast, contrast
from fitplug.mechanism.covariance import dense_covariance, dense_strategy
from fitplug.mechanism.estimates import Estimates, combined_covariance, combined_norms
from fitplug.mechanism.integer_tree import TreeMatrix
from fitplug.mechanism.mechanisms import Mechanism, list_mechanisms
from fitplug.mechanism.strategy import (
    FEWEST_RECORDS,
    LARGEST_NOISE,
    LEAST_NOISE,
    MAX_ENTRY,
    SATURATION,
    BlockSet,
    Strategy,
    build_strategy,
    cost,
    make_contrasts,
    products,
    unit_variances,
    within,
)

__all__ = [
    "FEWEST_RECORDS",
    "LARGEST_NOISE",
    "LEAST_NOISE",
    "MAX_COEFFICIENT",
    "MAX_ENTRY",
    "SATURATION",
    "AttributeMatrix",
    "Basis",
    "BlockSet",
    "Contrast",
    "DenseMatrix",
    "Estimates",
    "Mechanism",
    "Strategy",
    "TreeMatrix",
    "build_strategy",
    "cell_classes",
    "choose_basis",
    "combined_covariance",
    "combined_norms",
    "contrast",
    "cost",
    "dense_covariance",
    "dense_strategy",
    "exact_answers",
    "list_mechanisms",
    "make_contrasts",
    "may_be_clamped",
    "products",
    "right_solve",
    "unit_variances",
    "within",
]
