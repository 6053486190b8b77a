"""Requests to the API server of the workload cluster.

It imports the errors, the model and `bounded_http`, and no other package of the program.
"""
