"""A YAML file that the setup of the machine writes, for platforms without a provider.

`file:/etc/kubernetes/node-identity.yaml` with `providerID`, and optionally `nodeName` and
`addresses`; other keys are errors.
"""

from collections.abc import Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from authenticator.errors import ConfigurationInvalid
from authenticator.model import Address, Deadline
from authenticator.providers.provider import Identity
from common.formats import strict_yaml

SIZE_LIMIT: Final = 64 * 1024
_KEYS: Final = {"providerID", "nodeName", "addresses"}


class File:
    """The provider `file`; its option is the absolute path."""

    def __init__(self, option: str) -> None:
        self._path = Path(option)
        if not self._path.is_absolute():
            raise ConfigurationInvalid("provider file requires an absolute path: file:/PATH")

    def identity(self, deadline: Deadline) -> Identity:  # noqa: ARG002 - reads a local file
        """See `Provider`. Raises `ConfigurationInvalid`, because the file is configuration."""
        document = self._read()
        provider_id, name = document.get("providerID"), document.get("nodeName")
        addresses = document.get("addresses", [])
        if (
            not isinstance(provider_id, str)
            or not isinstance(name, str | None)
            or not isinstance(addresses, list)
        ):
            raise ConfigurationInvalid(
                f"{self._path}: providerID and nodeName must be strings, addresses a list"
            )
        return Identity(
            provider_id=provider_id,
            node_name=name,
            addresses=tuple(map(_address, addresses)),
        )

    def _read(self) -> Mapping[str, object]:
        try:
            with self._path.open("rb") as file:
                document = strict_yaml.load(file.read(SIZE_LIMIT))
        except OSError as error:
            raise ConfigurationInvalid(f"{self._path}: {error.strerror}") from error
        except strict_yaml.YamlMalformed:
            document = None
        if not isinstance(document, dict):
            raise ConfigurationInvalid(f"{self._path}: must be a YAML mapping")
        if unknown := sorted(str(key) for key in document.keys() - _KEYS):
            raise ConfigurationInvalid(f"{self._path}: unknown keys: {', '.join(unknown)}")
        return document


def _address(value: object) -> Address:
    """Return an IP address, or else the text as a DNS name, which `registry` checks."""
    text = str(value)
    try:
        return ip_address(text)
    except ValueError:
        return text
