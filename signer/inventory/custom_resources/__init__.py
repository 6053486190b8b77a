"""This project's own kinds: EndorsementKeys, AttestedNodes, EndorsementKeyRequests and policies.

This room decides how their values are read and written. It never decides who may hold a key.
"""
