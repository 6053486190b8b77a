"""What a bug report contains: the fields of objects, and the lines of logs and metrics.

This room decides what may leave the cluster. It lists what is allowed, and it reads nothing itself.
"""
