"""The command line and the files of the signer.

This room decides what a flag or a file says. It never connects to a cluster.
"""
