"""Hostile PKCS#10 requests in exchanges that are otherwise valid.

The attacker has the kubelet's key and the TPM, so it signs the request again and answers the
challenge for it. Only the mutation can cause a refusal.
"""

from collections.abc import Callable
from typing import Any

from common.names import PROVIDER_ID_OID
from signer.kinds.csr import Csr
from tests.attacks.runner import Mutation
from tests.builders.forgery import (
    OID_PROVIDER_ID,
    ORGANIZATION,
    UTF8,
    Forgery,
    common_name,
    extension,
    extension_request,
    rdn,
    subject,
    tlv,
)
from tests.builders.scenario import NODE, PROVIDER_ID, Scenario

assert PROVIDER_ID_OID == "1.3.6.1.4.1.11129.2.1.21"

CN = common_name(NODE.encode())
SUBJECT = subject(rdn(ORGANIZATION), rdn(CN))
PROVIDER_EXTENSION = extension(OID_PROVIDER_ID, tlv(UTF8, PROVIDER_ID.encode()))
ATTRIBUTES = (extension_request(PROVIDER_EXTENSION),)


def forgery(scenario: Scenario, **changes: Any) -> Forgery:  # noqa: ANN401 - fields of Forgery
    """Build the request of the scenario with these changes."""
    return Forgery(
        **{"subject": SUBJECT, "attributes": ATTRIBUTES, "key": scenario.kubelet_key, **changes}
    )


def forged(**changes: Any) -> Mutation:  # noqa: ANN401 - as above
    """Put a forged request into the offer and the answer."""

    def mutate(scenario: Scenario) -> None:
        scenario.request_der = forgery(scenario, **changes).der()

    return mutate


def rewritten(rewrite: Callable[[bytes], bytes]) -> Mutation:
    """Rewrite the bytes of the valid request after it was signed."""

    def mutate(scenario: Scenario) -> None:
        good = forgery(scenario).der()
        scenario.request_der = rewrite(good)
        assert scenario.request_der != good

    return mutate


def extended(*extensions: bytes) -> Mutation:
    """Request these extensions after the provider ID."""
    return forged(attributes=(extension_request(PROVIDER_EXTENSION, *extensions),))


def good(scenario: Scenario) -> Csr:
    """Answer with an unchanged forgery, which is valid."""
    scenario.request_der = forgery(scenario).der()
    return scenario.answer_csr()
