"""The client of the Kubernetes API: it reads and writes CSRs, Secrets, Leases and events.

What belongs here knows Kubernetes but not Cluster API. An API server may be hostile, so every
answer is bounded in size, time, count and depth. `transport` moves bytes, and `watches` fills
caches. May import `signer.seams`, `kinds`, `host_names`, `errors` and `fairness`.
"""
