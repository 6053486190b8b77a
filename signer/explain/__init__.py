"""A stored request explained: every check in its order, offline, by the signer's own functions.

Nothing is decided by it, and nothing is asked: policy, records and master keys come from files, and
what they do not hold is told as not there. Made for people who ask why a node did not get in.
"""
