"""Why a TPM may be that of a Machine (E2): one file for each ground of trust.

`trust.py` has their order. A ground is `find(keys, machine, context)`. It returns a `Ground`, or
`None` if it says nothing about these keys under this policy, or raises what denies or waits. What
speaks against the keys refuses them, whatever a later ground would say.
"""
