"""A pending exchange as the state directory stores it."""

from authenticator.model import PendingExchange

PENDING = PendingExchange(
    fingerprint="digest",
    boot_id="boot-1",
    started_at=999.5,
    offer_name="kubelet-tpm-1",
    answer_name="kubelet-tpm-2",
    key=b"key",
    offer=b"offer",
    offer_uid=None,
    challenge=None,
    challenge_seen=None,
    answer=None,
)
