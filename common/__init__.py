"""What the node and the signer must agree on to the byte.

Names, wire format, TPM structures and digests belong here. Code that only one program needs does
not. This package imports neither program, and it is pure: no I/O, clock, randomness or
environment. An import contract checks both rules.
"""
