"""Subcommands: one module each, named after it, with `run(context) -> exit code`.

`run.py` holds what they share. This package may import every other package, but not `cli` or
`launcher`. It reads neither argv nor environment: `cli` passes both.
"""
