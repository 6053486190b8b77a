"""The exchange with the signer, and the certificates that it returns.

Here is decided when an exchange begins, which credential it uses, and whether the certificate that
comes back replaces the present one. Imports `state`, `config`, `tpm.device`, `providers.provider`
and `model`, and no HTTP client or TPM library: those come in as `EnrollDependencies`.
"""
