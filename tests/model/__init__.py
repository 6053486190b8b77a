"""An executable model of the exchange and its attacker, explored exhaustively.

Read it next to docs/protocol.md. `messages` is section 3 without its bytes, `signer` is section 5
from M to I, `actors` is every other party, and `rules` lists what a mutation can break. `scenarios`
bounds the worlds, `invariants` says what must hold, `expected` says which invariants are known to
fail, and `explore` visits every interleaving. docs/model.md has the results for operators.
"""
