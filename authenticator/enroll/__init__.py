"""The exchange with the signer, and the certificates that it returns."""
