"""The Machine of a request: its name, its endorsement key and its claims (M1 to M7, E2, E3, K, S).

This room decides whether a proved TPM may be this node. It never verifies a signature of a TPM.
"""
