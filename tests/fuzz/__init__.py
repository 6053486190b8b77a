"""Hostile bytes for every parser, bounded in every run; python -m tests.fuzz goes on for longer."""
