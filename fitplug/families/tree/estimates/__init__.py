"""From counts to answers, and from answers to estimates: in memory and in parts."""
