"""TPM 2.0 structures, both ways: strict, pure Python, no TPM needed.

Source: Trusted Platform Module Library, Part 2: Structures (ISO/IEC 11889-2). Names are the TCG's.
"""
