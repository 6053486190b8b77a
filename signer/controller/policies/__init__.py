"""The policies that are in effect.

This room decides which policy a Cluster has. It never writes an object.
"""
