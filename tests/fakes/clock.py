"""A clock that moves only when a test moves it, or when the product sleeps."""

from dataclasses import dataclass, field


@dataclass
class FakeClock:
    """Both clocks start at round numbers. A sleep moves both."""

    wall_time: float = 1_800_000_000.0
    boot_time: float = 1_000.0
    boot_name: str = "boot-1"
    slept: list[float] = field(default_factory=list)

    def now(self) -> float:
        return self.wall_time

    def boottime(self) -> float:
        return self.boot_time

    def boot_id(self) -> str:
        return self.boot_name

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.pass_time(seconds)

    def pass_time(self, seconds: float) -> None:
        self.wall_time += seconds
        self.boot_time += seconds

    def reboot(self) -> None:
        """Start a new boot, a minute later."""
        self.wall_time += 60
        self.boot_time = 20.0
        self.boot_name += "+1"
