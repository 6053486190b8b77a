"""The audit log, the metrics and the HTTP server that shows them.

This room decides nothing: it counts and shows what other rooms did.
"""
