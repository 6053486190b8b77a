"""Endorsement keys from the APIs of platforms: which TPM an instance has.

Only this package calls APIs of platforms. `queries` decides when a platform is queried and keeps
the answers; the other modules know one platform each. No module of a platform is imported before a
policy names the platform. Imports `signer.policy`, `signer.kinds`, `signer.kube.transport`, and
what is below them.
"""
