"""The node's real clocks."""

import time
from pathlib import Path
from typing import Final

BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


class SystemClock:
    """The clocks of the kernel: implements `model.Clock`."""

    def now(self) -> float:
        """Return the time of day, in unix seconds."""
        return time.time()

    def boottime(self) -> float:
        """Return the seconds since boot, sleep included."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def boot_id(self) -> str:
        """Return the ID of this boot."""
        return BOOT_ID.read_text(encoding="ascii").strip()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)
