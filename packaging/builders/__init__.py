"""Builds the artifacts of a release: chart, manifests, image, trees of the node packages.

The Makefile runs it, with this package's directory in PYTHONPATH. Only `crds` imports a
program, whose declarations it writes; nothing here imports the tests.
"""
