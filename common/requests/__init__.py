"""`spec.request` of a CertificateSigningRequest: PKCS#10, with the attestation data after it.

This room decides which bytes are a request, and what a quote says about it. It verifies no quote.
"""
