"""The shape: what is identical, and which blocks remain (chain)."""
