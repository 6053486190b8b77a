"""Connections to API servers: kubeconfigs, TLS, requests and streams.

This room decides how much of an answer is read, and for how long. It never decodes an object.
"""
