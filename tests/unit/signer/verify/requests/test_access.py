"""R4: RBAC of the workload cluster allows the requester its certificate."""

import pytest

from signer.errors import AccessNotAllowed
from signer.verify.requests.access import verify_access
from signer.verify.requests.recognize import CsrKind
from tests.builders.scenario import Scenario
from tests.fakes.csrs import FakeCsrs

SUBRESOURCES = {
    (CsrKind.CLIENT, "first join"): "nodeclient",
    (CsrKind.CLIENT, "renewal"): "selfnodeclient",
    (CsrKind.SERVING, "renewal"): "selfnodeserver",
    (CsrKind.BUILTIN_SERVING, "renewal"): "selfnodeserver",
}


@pytest.mark.parametrize(("request_kind", "subresource"), SUBRESOURCES.items())
def test_r4_right_is_that_of_the_kind_of_request(
    request_kind: tuple[CsrKind, str], subresource: str
) -> None:
    kind, occasion = request_kind
    scenario = Scenario(kind=kind)
    if occasion == "renewal":
        scenario.as_node()
    csrs = FakeCsrs(allowed=frozenset({subresource}))
    csr = csrs.put(scenario.csr(b""))
    assert verify_access(csr, kind, csrs.may_create) == subresource
    csrs.allowed = frozenset(SUBRESOURCES.values()) - {subresource}
    with pytest.raises(AccessNotAllowed):
        verify_access(csr, kind, csrs.may_create)
