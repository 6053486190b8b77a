"""What follows from a claim: which certificates have ended, and a problem of its node.

This room decides it from the claim and the time. It never reads or writes an object.
"""
