"""Real programs for tests: software TPMs, control planes, and the programs that they need."""
