"""The TPM of the node: a small protocol (`device`) and its implementation on tpm2-tss (`esapi`).

Only `esapi` imports tpm2_pytss, which loads slowly: import `esapi` in the function that uses a TPM.
This package imports the errors and the model, and no other package of the program.
"""
