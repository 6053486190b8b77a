"""The main job, shown on real parts: `make demo`."""
