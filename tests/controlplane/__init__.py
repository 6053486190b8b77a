"""Provides the real Kubernetes and Cluster API programs for the demo and the tests.

Uses the standard library only, because it runs before a virtual environment exists.
"""
