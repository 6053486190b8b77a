"""Leases and Secrets in the signer's own namespace: what its replicas tell each other.

This room decides what a replica keeps there. It never reads an object that a tenant can write.
"""
