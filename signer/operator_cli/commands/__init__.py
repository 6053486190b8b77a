"""One module per command, each with `run(session) -> int`, which returns the exit status.

A command reads everything first, reports every problem of its input, and only then writes.
"""
