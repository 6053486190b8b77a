"""The request itself: its kind, its bytes, and who filed it (R0 to R4, P1 to P6, M5, K4).

This room decides whether a request can be verified at all. It never compares it with a Machine.
"""
