"""The management cluster as an operator's command sees it, through the official client.

This room reads and patches objects with the operator's own credential. It never decides what a
command does.
"""
