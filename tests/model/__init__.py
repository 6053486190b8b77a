"""An executable model of the exchange and its attacker, explored exhaustively.

Read next to docs/protocol.md: `messages` is section 3 without its bytes, `signer` is section 5
from M to I, `actors` is everybody else, `rules` what can be broken on purpose. `scenarios` bounds
the worlds, `invariants` says what must hold, `expected` where it is known not to, `explore` looks
at every interleaving. docs/model.md tells operators what came out.
"""
