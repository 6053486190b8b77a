"""What the signer knows of the management cluster and of workload clusters.

What belongs here knows Cluster API: readers of its objects, the caches and the reflectors that
fill them, claims, challenge keys and connections to workload clusters. `CachedInventory` and
`KubeClaimStore` implement the protocols of `signer.model`. May import `signer.kube`; never
`signer.verify` or anything above it.
"""
