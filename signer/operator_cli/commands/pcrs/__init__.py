"""Commands that propose or change the PCR values of a policy.

A command of this room decides which nodes and which policy it considers. It never decides how a
policy changes: `signer.policy.changes` does.
"""
