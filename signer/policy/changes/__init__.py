"""How a policy changes: drafted from a log, extended, reviewed, or filled with predictions.

This room decides what a new version of a policy says. It never decides on a request.
"""
