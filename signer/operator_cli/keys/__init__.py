"""Endorsement keys: what operators type, the objects that hold keys, and requests for them.

This room decides which key an operator means. It changes an object only under the
resourceVersion that was read.
"""
