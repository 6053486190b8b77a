"""Policies: their values, how they are loaded from text, and how one is drafted from a log.

Imports only `signer.kinds`, `signer.errors` and `common`, and does no I/O. A policy with any
problem is refused as a whole, and a Cluster without exactly one policy gets no certificate.
"""
