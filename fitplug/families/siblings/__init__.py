"""Siblings: cells with one parent are alike, and the parents of several hierarchies are dense."""
