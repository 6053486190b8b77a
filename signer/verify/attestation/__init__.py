"""What a TPM proves: its keys, the quote and the measured boot (A1, E1, Q1 to Q4).

This room decides from the bytes of a request and the policy alone. It never reads the inventory.
"""
