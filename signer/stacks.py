"""The stacks of all threads: decoders recurse on them, as deep as a stranger's JSON is nested.

Where a stack ends before the decoder's own limit, the process dies (SIGSEGV). That limit is 1,000
levels in Python 3.11 and 10,000 in 3.13. An API server stores 10,000 levels.
"""

import resource
import threading
from typing import Final

STACK_BYTES: Final = 4 << 20
"""Enough for 10,000 levels in `msgspec` and `json`; 2 MiB are not (docs/threat-model.md). Only
pages that are used cost memory."""


def enlarge_stacks() -> None:
    """Give later threads, and the main thread, this much stack; to be called before any thread."""
    threading.stack_size(STACK_BYTES)
    soft, hard = resource.getrlimit(resource.RLIMIT_STACK)
    wanted = STACK_BYTES if hard == resource.RLIM_INFINITY else min(STACK_BYTES, hard)
    # The kernel lets the main thread's stack grow up to the present limit.
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_STACK, (wanted, hard))
