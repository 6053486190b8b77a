"""Workload clusters as an operator's command sees them: pending requests and kubeconfigs.

A tenant can write a kubeconfig Secret. So this room reads workload clusters only with the signer's
strict parser and bounded client, and never with the operator's credential.
"""
