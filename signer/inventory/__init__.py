"""What the signer knows of the management cluster and of workload clusters.

What belongs here knows Cluster API: readers and writers of its objects and of the signer's own, and
the caches that `signer.clusters` fills. `CachedInventory` and `KubeClaimStore` implement the
protocols of `signer.seams`. It starts no thread and opens no connection. May import `signer.kube`;
never `signer.verify` or anything above it.
"""
