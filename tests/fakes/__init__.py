"""Honest stand-ins for what a seam hides; contract tests keep them so."""
