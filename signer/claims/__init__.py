"""What follows from a claim: the entry of its node in a credential list, and a problem of its node.

This room decides it from the claim and the time. It never reads or writes an object.
"""
