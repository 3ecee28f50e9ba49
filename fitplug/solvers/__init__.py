"""Solvers: from a reduced problem to a covariance and dual weights. One solver a file."""
