"""Requests to the API server of the workload cluster."""
