"""The measured boot (Q4): a TCG event log that replays to the quoted PCRs, and what it shows."""

from common.errors import EventLogMissing
from signer.policy import EventLogRules
from signer.verify.pcrs import Pcrs


def verify_event_log(log: bytes | None, pcrs: Pcrs, rules: EventLogRules) -> None:
    """Replay and judge."""
    if log is None:
        raise EventLogMissing("the policy asks for the event log")
    raise NotImplementedError
