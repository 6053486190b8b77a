"""Verifies requests: every check of docs/protocol.md section 5 but I1.

`checks.py` lists the checks with their files. Three functions run them in order: `verify_offer`,
`verify_answer` and `verify_kubelet_serving`. `VerificationContext` holds what they compare with.

A function here returns what it proved, or raises a leaf of common/errors.py or signer/errors.py
that carries its check number. No function returns a bool as its verdict. Time, inventory and claims
are arguments: this package imports no socket, no clock, no `signer.inventory`, no `signer.kube`.
"""
