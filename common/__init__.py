"""What node and signer must agree on to the byte: names, wire format, TPM structures, digests.

Pure: no I/O, no clock, no environment. What only one side needs is not in here.
"""
