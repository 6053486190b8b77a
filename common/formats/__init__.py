"""Formats with exactly one encoding of a value: JSON, YAML, PEM and DER.

This room decides which texts and bytes are accepted. It never knows what a value means.
"""
