"""The exchange and its attacker, explored exhaustively with the signer's own functions.

Read it next to docs/protocol.md. `messages` is section 3 without its bytes. `model` runs the
functions of M, E and K on a state, and `replay` stops them at each call. `signer` is the replicas,
and `actors` every other party. `rules` lists what a mutation can break, and `broken` breaks it in
the signer. `scenarios` bounds the worlds, `invariants` says what must hold, `expected` says which
invariants are known to fail, and `explore` visits every interleaving. docs/model.md has the results
for operators.
"""
