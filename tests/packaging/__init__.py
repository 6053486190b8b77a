"""Tests of what is released, and the programs that build it."""
