"""Replays stored requests offline: every check in its order, with the functions of the signer.

Reads files and prints a report. Imports everything that verifies, and nothing that connects to an
API server or writes an object. What the files do not hold counts as absent.
"""
