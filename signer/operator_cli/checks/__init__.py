"""Checks of an installation: permissions, connections and objects.

This room decides what counts as a problem. It never changes anything.
"""
