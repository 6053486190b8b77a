"""Provides the real Kubernetes and Cluster API programs that demo and tests run on.

Standard library only: it runs before there is a virtual environment.
"""
