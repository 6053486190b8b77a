"""The checks of `doctor`.

This room decides what is wrong on this node, and what the remedy is. It never changes anything.
"""
