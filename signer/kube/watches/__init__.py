"""Watches and the caches that they fill.

This room decides which version of an object the signer sees. It never writes to an API server.
"""
