"""The node's TPM: a small seam (`device`) and its real implementation (`esapi`).

Only `esapi` imports tpm2_pytss, which loads slowly: import it where a TPM is really used.
"""
