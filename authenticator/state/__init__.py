"""What survives a call: state directory, credential, pending exchanges, cooldowns, run records.

Imports `model` and `errors` only: it knows files, not requests, TPM or settings.
"""
