"""Builds the artifacts of a release: chart, manifests, image, trees of the node packages.

The Makefile runs it, with this package's directory in PYTHONPATH. It imports neither the programs
nor the tests.
"""
