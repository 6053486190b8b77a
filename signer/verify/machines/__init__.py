"""The Machine of a request: its name and its claims (M1 to M7, A2, E3, K, S).

This room decides whether a proved TPM may be this node. It never verifies a signature of a TPM.
"""
