"""The exchange with the signer, and the certificates that it returns.

Decides when an exchange begins, which credential it uses, and whether the new certificate replaces
the present one. Imports `state`, `config`, `tpm.device`, `providers.provider` and `model`, and no
HTTP client or TPM library: `EnrollDependencies` passes both in.
"""
