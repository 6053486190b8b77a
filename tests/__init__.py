"""Tests, and the harness that brings up real programs for them."""
