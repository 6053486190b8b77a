"""The order in which requests are filed, as a watch of the API server shows it."""

import json
from contextlib import suppress
from threading import Thread
from typing import Any, Self

import requests

from tests.harness.client import Client
from tests.harness.node import Node
from tests.harness.process import wait_until
from tests.integration import csrs

CONNECT_SECONDS = 30


class Filings:
    """A watch that begins before the requests are filed. A context manager."""

    def __init__(self, client: Client) -> None:
        self._filed: list[dict[str, Any]] = []
        self._session = requests.Session()
        self._session.trust_env = False
        assert client.certificate is not None
        certificate, key = map(str, client.certificate)
        self._response = self._session.get(
            client.server + csrs.CSRS,
            params={"watch": "true"},
            cert=(certificate, key),
            verify=str(client.authority),
            stream=True,
            timeout=(CONNECT_SECONDS, None),
        )
        self._response.raise_for_status()

    def __enter__(self) -> Self:
        Thread(target=self._read, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._session.close()

    def of_node(self, node: Node) -> list[dict[str, Any]]:
        """Return the node's requests in the order in which they were filed."""
        uids = {csr["metadata"]["uid"] for csr in csrs.of_node(node)}
        wait_until(
            lambda: len(self._among(uids)) == len(uids), what="the watch has shown every request"
        )
        return self._among(uids)

    def _among(self, uids: set[str]) -> list[dict[str, Any]]:
        return [csr for csr in self._filed if csr["metadata"]["uid"] in uids]

    def _read(self) -> None:
        with suppress(requests.RequestException):  # The watch is closed
            for line in self._response.iter_lines():
                event = json.loads(line)
                if event["type"] == "ADDED":
                    self._filed.append(event["object"])
