"""Clients of this project's own kinds, which `signer.kinds` declares.

This room decides when their objects are read and written. It never decides who may hold a key.
"""
