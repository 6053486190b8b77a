"""EC2, by its metadata service, version 2 alone.

Version 1 answers whoever gets a request through, so a service without sessions is refused, not
asked in the old way. Sources: EC2 user guide, "Use IMDSv2"; cluster-api-provider-aws
`GenerateProviderID` (`aws:///<zone>/<instance>`), whose templates name nodes by `local_hostname`.
"""

import re
from typing import Final

from authenticator.errors import ProviderAnswerInvalid
from authenticator.model import Deadline
from authenticator.providers.metadata import LINK_LOCAL, MetadataResponse, MetadataService
from authenticator.providers.provider import Identity, reject_option
from authenticator.providers.validation import decode_ip, require_match

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

            def ask(key: str) -> str:
                return service.get(f"/latest/meta-data/{key}", headers=token).text

            zone = require_match(_ZONE, ask("placement/availability-zone"), "availability zone")
            instance = require_match(_INSTANCE, ask("instance-id"), "instance ID")
            name = ask("local-hostname").lower()
            found = [
                service.get_optional(f"/latest/meta-data/{key}", headers=token)
                for key in ("local-ipv4", "ipv6")
            ]
        addresses = (decode_ip(answer.text, "address") for answer in found if answer is not None)
        return Identity(
            provider_id=f"aws:///{zone}/{instance}", node_name=name, addresses=(*addresses, name)
        )


def _token(service: MetadataService) -> str:
    """Open a session. Raises ProviderAnswerInvalid where there are none."""
    answer: MetadataResponse | None = service.get_optional(
        "/latest/api/token", method="PUT", headers={TOKEN_TTL: TTL_SECONDS}
    )
    if answer is None or not answer.headers.get(TOKEN_TTL.lower(), "").isdecimal():
        raise ProviderAnswerInvalid("the metadata service does not speak IMDSv2")
    return require_match(_TOKEN, answer.text, "session token")
