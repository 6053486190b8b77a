"""Titles of the checks, and descriptions of what each check proved.

Nothing here is secret: requests, objects and policies are described. Traces never carry a challenge
key or anything derived from one.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric import rsa

from common.public_keys import PublicKey
from common.tpm.constants import HASHES
from signer.explain.replay import CheckResult
from signer.verify.requests.request import BootstrapRequester


def describe_result(result: CheckResult) -> str:
    """Return what a check proved, or "" if its title says everything."""
    describe = _DESCRIPTIONS.get(result.check)
    return "" if describe is None or result.proved is None else describe(result.proved)


def _requester(proved: Any) -> str:  # noqa: ANN401 - checks prove values of many types
    if isinstance(proved, BootstrapRequester):
        return f"a bootstrapper, {proved.username}"
    return f"the node {proved.node_name} itself"


def _key(key: PublicKey) -> str:
    name = "RSA" if isinstance(key, rsa.RSAPublicKey) else key.curve.name
    return f"{name} {key.key_size}" if name == "RSA" else name


def _extensions(proved: Any) -> str:  # noqa: ANN401
    provider_id = proved.request.provider_id
    return "no provider ID" if provider_id is None else f"provider ID {provider_id}"


def _boot(proved: Any) -> str:  # noqa: ANN401
    clock = proved.clock_info
    return (
        f"{clock.reset_count} resets, {clock.restart_count} restarts,"
        f" firmware {proved.firmware_version:#x}"
    )


def _alarm_texts(proved: Any) -> str:  # noqa: ANN401
    return "; ".join(f"alarm: {alarm.message}" for alarm in proved.alarms)


_DESCRIPTIONS: Final[Mapping[str, Callable[[Any], str]]] = {
    "R1": lambda proved: proved.value,
    "R3": _requester,
    "P3": lambda proved: _key(proved.request.public_key),
    "P4": lambda proved: proved.request.node_name,
    "P5": _extensions,
    "P6": lambda proved: type(proved.evidence).__name__.lower(),
    "C1": lambda proved: f"issued {proved.issued_at} under key {proved.key}",
    "A1": lambda proved: (
        f"{_key(proved.public_key)} {HASHES[proved.scheme.hash]}, Name {proved.tpm_name.hex()}"
    ),
    "Q1": _boot,
    "Q3": lambda proved: " ".join(
        f"{bank}:{','.join(map(str, proved[bank]))}" for bank in sorted(proved)
    ),
    "Q4": lambda proved: "; ".join(
        f"alarm: {alarm.message}: {alarm.detail}" for alarm in proved.alarms
    ),
    "M1": lambda proved: getattr(proved, "machine", proved).name,
    "M3": lambda proved: proved if isinstance(proved, str) else getattr(proved, "node_name", ""),
    "M6": lambda proved: _alarm_texts(proved) or "none",
    "E1": lambda proved: f"{_key(proved.public_key)}, EndorsementKey {proved.name}",
    "E2": lambda proved: f"{proved.basis.value}, EndorsementKey {proved.key.name}",
    "S1": lambda proved: ", ".join(map(str, (*proved.dns, *proved.addresses))),
    "K4": _alarm_texts,
    "K2": lambda proved: proved.verified.holder.node_name,
}
