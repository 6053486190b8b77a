"""The protocol of AWS: signatures, answers and credentials.

This room decides which bytes a request has, and what an answer means. It never decides which
instance a Machine has: `signer.platforms.aws` does.
"""
