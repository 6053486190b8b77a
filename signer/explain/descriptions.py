"""What each check is about, and what it has proved, in words for people.

Nothing here is secret: what nodes send, what objects say, and what policies allow; the master key
and what is derived from it are never told to listeners.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric import rsa

from common.public_keys import PublicKey
from common.tpm.constants import HASHES
from signer.explain.replay import CheckResult
from signer.verify.request import BootstrapRequester


def describe_result(step: CheckResult) -> str:
    """Say what a step has proved of its check; empty where the title says it all."""
    describe = _PROOFS.get(step.check)
    return "" if describe is None or step.proved is None else describe(step.proved)


def _requester(proved: Any) -> str:  # noqa: ANN401 - what steps tell is of many types
    if isinstance(proved, BootstrapRequester):
        return f"a bootstrapper, {proved.username}"
    return f"the node {proved.node_name} itself"


def _key(key: PublicKey) -> str:
    name = "RSA" if isinstance(key, rsa.RSAPublicKey) else key.curve.name
    return f"{name} {key.key_size}" if name == "RSA" else name


def _names(proved: Any) -> str:  # noqa: ANN401
    return ", ".join(map(str, (*proved.dns, *proved.addresses)))


def _extensions(proved: Any) -> str:  # noqa: ANN401
    provider_id = proved.request.provider_id
    return "no provider ID" if provider_id is None else f"provider ID {provider_id}"


def _boot(proved: Any) -> str:  # noqa: ANN401
    clock = proved.clock_info
    return (
        f"{clock.reset_count} resets, {clock.restart_count} restarts,"
        f" firmware {proved.firmware_version:#x}"
    )


def _pcrs(proved: Any) -> str:  # noqa: ANN401
    return " ".join(f"{bank}:{','.join(map(str, proved[bank]))}" for bank in sorted(proved))


def _signs(proved: Any) -> str:  # noqa: ANN401
    return "; ".join(f"alarm: {alarm.message}" for alarm in proved.alarms) or "none"


def _machine(proved: Any) -> str:  # noqa: ANN401
    return str(getattr(proved, "machine", proved).name)


_PROOFS: Final[Mapping[str, Callable[[Any], str]]] = {
    "R1": lambda proved: proved.value,
    "R3": _requester,
    "P3": lambda proved: _key(proved.request.public_key),
    "P4": lambda proved: proved.request.node_name,
    "P5": _extensions,
    "P6": lambda proved: type(proved.evidence).__name__.lower(),
    "C1": lambda proved: f"issued {proved.issued_at} under key {proved.key}",
    "A1": lambda proved: (
        f"{_key(proved.public_key)} {HASHES[proved.scheme.hash]}, Name {proved.name.hex()}"
    ),
    "Q1": _boot,
    "Q3": _pcrs,
    "M1": _machine,
    "M3": lambda proved: getattr(proved, "node_name", ""),
    "M6": _signs,
    "E1": lambda proved: f"{_key(proved.public_key)}, EndorsementKey {proved.name}",
    "E2": lambda proved: proved.value,
    "S1": _names,
    "K2": lambda proved: proved.verified.holder.node_name,
}
