"""What this call is: arguments, settings, exec info, kubeconfig, bootstrap credential, invocation.

Reads flags, environment values and kubeconfigs, and asks no server. Imports `state`, `providers`
and `tpm` for their types and constants only, and nothing that is slow to load.
"""
