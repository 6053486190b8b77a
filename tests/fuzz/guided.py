"""One target under atheris, in a separate process: libFuzzer does not return.

`python -m tests.fuzz` starts it with the target's name and libFuzzer's arguments.
"""

import logging
import sys
from random import Random

import atheris

with atheris.instrument_imports(include=["authenticator", "common", "signer"]):
    from tests.fuzz.mutations import mutate
    from tests.fuzz.targets import TARGETS

_OWN_CHANGES = 3
"""Of four changes, this many keep the format of the input. The others are those of libFuzzer."""


def main() -> None:
    """Fuzz until the time is over or there is a finding."""
    target = TARGETS[sys.argv[1]]
    logging.disable()

    def change(data: bytes, max_size: int, seed: int) -> bytes:
        random = Random(seed)
        if random.randrange(4) >= _OWN_CHANGES:
            changed: bytes = atheris.Mutate(data, max_size)
            return changed
        return mutate(target.form, data, random)[:max_size]

    atheris.Setup([sys.argv[0], *sys.argv[2:]], target.feed, custom_mutator=change)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
