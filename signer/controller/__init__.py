"""The controller: work queue, reconciliation, housekeeping, audit log, metrics and HTTP server.

What runs while the signer runs belongs here, and what decides when something is done. How a request
is verified is in `signer.verify`, how a certificate is made in `signer.issue`. Imports every folder
of the signer but `explain`. Nothing imports it but `signer.cli`.
"""
