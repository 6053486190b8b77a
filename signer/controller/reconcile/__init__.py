"""One reconciliation of one CSR: it verifies the CSR and writes the verdict.

This room decides what is written about a request. It never checks anything itself: `signer.verify`
does. It keeps no state between two reconciliations of a CSR, except limits and caches.
"""
