"""Real programs for tests: software TPMs, control planes, and whatever else has to run."""
