"""Strategies of siblings: the integers of an unfolded workload, and the tables that they read."""
