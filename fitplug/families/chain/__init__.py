"""Chains: prefixes of one attribute that is too long for a matrix over its cells."""
