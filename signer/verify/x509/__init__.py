"""Endorsement certificates (E2): parsing, chains and revocation.

Everything about X.509 that the signer reads from a TPM or from an operator's bundle belongs here.
Kubelets' PKCS#10 requests do not: common/requests/pkcs10.py reads them as strict DER. This package
imports `common`, `signer.errors`, `signer.policy` and `signer.verify.weak_keys`, and does no I/O.
"""
