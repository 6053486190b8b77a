"""The controller: work queue, reconciliation, housekeeping, audit log, metrics and HTTP server.

Threads, timers and everything that decides when a step runs belong here. `signer.verify` holds the
checks, and `signer.issue` creates certificates. This package may import every package of the signer
except `explain`. Only `signer.cli` imports it.
"""
