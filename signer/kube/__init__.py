"""Requests to API servers: connections, decoding, lists, watches, caches, CSRs and Secrets.

What belongs here knows Kubernetes but not Cluster API. An API server may be hostile, so every
answer is bounded in size, time, count and depth. May import `signer.model`, `host_names`, `errors`,
`backoff` and `task_pool`; is the only importer of `h11` in the signer.
"""
