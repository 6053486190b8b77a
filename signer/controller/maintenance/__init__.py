"""Work that repeats: rounds for the management cluster and for each workload cluster.

This room decides what is deleted, rotated or published again. It never decides a request.
"""
