"""Subcommands: one module each, named after it, with `run(context) -> exit code`.

`run.py` holds what they share; `doctor_*.py` are the checks of `doctor`. This folder may import
every other one, but neither `cli` nor `launcher`. It reads neither argv nor environment: `cli`
passes both.
"""
