"""The commands of operators: `kubectl attestation`, also installed as `node-attestation`.

What belongs here reads and writes objects of the management cluster with an operator's own
credential, through the official `kubernetes` client (extra `operator`). Nothing imports this
package: neither the signer's process nor the node's needs that client. May import every other
package of the signer except `signer.cli` and `signer.controller`. A workload cluster is reached by
its kubeconfig Secret, which a tenant can write: for it, the signer's strict parser and its bounded
client are used.
"""
