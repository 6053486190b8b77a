"""Makes challenges to offers, and certificates.

Pure: the authority, the time and the randomness are arguments. Imports `signer.verify`, whose
verified values are the only input that becomes a certificate.
"""
