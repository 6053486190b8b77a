"""Connections to the management cluster and to workload clusters: watches, caches, kubeconfigs.

This room decides which API servers are connected and what is cached of them. It never decides a
request, and it never imports `signer.verify` or anything above it.
"""
