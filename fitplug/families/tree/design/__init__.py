"""The design: how the optimum is found and rounded (tree)."""
