"""Properties are checked without a clock: a slow machine is no counterexample."""

from hypothesis import settings

settings.register_profile("unit", deadline=None)
settings.load_profile("unit")
