"""The integers: matrices at nodes, what they cost and their variances (tree)."""
