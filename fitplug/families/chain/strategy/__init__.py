"""The strategies: integers, proven cost and variances, answers (chain)."""
