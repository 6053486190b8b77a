"""EC2, by version 2 of its metadata service.

Version 1 answers every request that reaches it, so a service without sessions is refused. Its
`local_hostname` is the name of the node in the templates of cluster-api-provider-aws. Sources: EC2
user guide, "Use IMDSv2"; cluster-api-provider-aws `GenerateProviderID`
(`aws:///<zone>/<instance>`).
"""

import re
from typing import Final

from authenticator.errors import ProviderAnswerInvalid
from authenticator.model import Deadline
from authenticator.providers.metadata import LINK_LOCAL, MetadataResponse, MetadataService
from authenticator.providers.provider import Identity, decode_ip, reject_option, require_match

TOKEN: Final = "X-aws-ec2-metadata-token"  # noqa: S105 - a header's name
TOKEN_TTL: Final = "X-aws-ec2-metadata-token-ttl-seconds"  # noqa: S105 - as above
TTL_SECONDS: Final = "30"

_TOKEN: Final = re.compile(r"[A-Za-z0-9+/_=-]{1,1024}")
_ZONE: Final = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+){2,}")
_INSTANCE: Final = re.compile(r"i-[0-9a-f]{8,17}")


class Aws:
    """The provider `aws`."""

    def __init__(self, option: str, *, base_url: str = LINK_LOCAL) -> None:
        reject_option("aws", option)
        self._base_url = base_url

    def identity(self, deadline: Deadline) -> Identity:
        """See `Provider`."""
        with MetadataService(self._base_url, deadline, {}) as service:
            token = {TOKEN: _token(service)}

            def get(key: str) -> str:
                return service.get(f"/latest/meta-data/{key}", headers=token).text

            zone = require_match(_ZONE, get("placement/availability-zone"), "availability zone")
            instance = require_match(_INSTANCE, get("instance-id"), "instance ID")
            name = get("local-hostname").lower()
            responses = [
                service.get_optional(f"/latest/meta-data/{key}", headers=token)
                for key in ("local-ipv4", "ipv6")
            ]
        addresses = (
            decode_ip(response.text, "address") for response in responses if response is not None
        )
        return Identity(
            provider_id=f"aws:///{zone}/{instance}", node_name=name, addresses=(*addresses, name)
        )


def _token(service: MetadataService) -> str:
    """Return the token of a new session. Raises `ProviderAnswerInvalid` if there is none."""
    response: MetadataResponse | None = service.get_optional(
        "/latest/api/token", method="PUT", headers={TOKEN_TTL: TTL_SECONDS}
    )
    if response is None or not response.headers.get(TOKEN_TTL.lower(), "").isdecimal():
        raise ProviderAnswerInvalid("the metadata service does not support IMDSv2")
    return require_match(_TOKEN, response.text, "session token")
