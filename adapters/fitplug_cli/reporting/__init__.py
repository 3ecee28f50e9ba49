"""The report of a plan, before any data: its facts, as tables in a terminal and as one page."""
