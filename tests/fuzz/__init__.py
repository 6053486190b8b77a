"""Hostile bytes for every parser, with limits in every run. `python -m tests.fuzz` runs longer."""
