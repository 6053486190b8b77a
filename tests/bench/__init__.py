"""Measurements of the promised speed and size."""
