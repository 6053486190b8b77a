"""Commands that change who may join with an endorsement key.

A command of this room decides what it writes about a key. It never writes without the operator's
confirmation.
"""
