"""Demonstrations on real parts: `make demo` and `make cluster`."""
