"""The insecure signer of the Cluster API proposal: a separate program that attests nothing.

It reuses the parser, the checks and the writes of the attested signer. No other package may import
this one, so no policy, flag or mistake in the attested signer leads to it. Reasons:
docs/decisions/0045-insecure-signer.md.
"""
