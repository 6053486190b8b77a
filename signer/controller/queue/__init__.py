"""The work queue: which CSR a worker reconciles next, and what brings a CSR back.

This room decides order and time. It never reads an object and never decides a request.
"""
