"""TPM 2.0 structures: strict decoding and encoding in pure Python, without a TPM.

Structures and endorsement key templates that both programs use belong here. The names are those of
the TCG. Source: Trusted Platform Module Library, Part 2: Structures (ISO/IEC 11889-2).
"""
