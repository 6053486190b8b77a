"""The policies that are in effect, read from a file or from objects.

This room decides which policy a Cluster has. It never writes an object.
"""
