"""The certificate: a lower bound, proven without a solver (chain)."""
