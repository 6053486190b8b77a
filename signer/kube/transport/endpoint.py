"""Where requests to one API server go, and the headers and limits that all of them have."""

import logging
import socket
import ssl
from collections.abc import Mapping
from dataclasses import replace
from http import HTTPStatus
from typing import Final
from urllib.parse import quote, urlencode, urlsplit

from common.errors import ApiServerUnavailable
from signer.errors import KubeconfigRefused
from signer.kube.transport.kubeconfig import Connection
from signer.kube.transport.tls import client_context

_logger = logging.getLogger(__name__)

CONNECT_SECONDS: Final = 5.0
"""For a TCP connection to one address, and for a TLS handshake."""
MAX_ADDRESSES: Final = 4
"""Of one server's name. Each takes `CONNECT_SECONDS` where nothing answers."""
ANSWER_SECONDS: Final = 30.0
"""For a whole answer, also one that a server sends byte by byte to hold a worker. A call of a
worker has this time to connect and to send its request, too."""

_HTTPS_PORT: Final = 443
_IN_PATH: Final = "/%:@!$&'()*+,;=~"
"""Characters that the path of a URL may have besides letters, digits and `-._` (RFC 3986)."""

_KEEP_IDLE: Final = getattr(socket, "TCP_KEEPIDLE", 0x10)
"""macOS calls it TCP_KEEPALIVE, with this number."""

# TCP detects after half a minute that the peer no longer answers, also during an idle watch.
SOCKET_OPTIONS: Final = (
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, _KEEP_IDLE, 15),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
)


class Endpoint:
    """One API server as its kubeconfig describes it."""

    def __init__(self, connection: Connection, *, user_agent: str) -> None:
        """Parse the server's URL, and load CA and client certificate.

        Raises `KubeconfigRefused` when OpenSSL cannot use them.
        """
        address = urlsplit(connection.server)
        self.host = address.hostname or ""
        self.port = address.port or _HTTPS_PORT
        self.host_header = address.netloc
        self.unauthorized = False
        """Whether the server has refused the credential."""
        self.server_name = connection.server_name
        self._context = client_context(connection)
        self.connection = connection
        self._user_agent = user_agent
        self._prefix = quote(address.path, safe=_IN_PATH).rstrip("/")

    @property
    def context(self) -> ssl.SSLContext:
        """Return the context for the next handshake.

        The CA and the client certificate of the management cluster are rotated in their files while
        the signer runs. While these cannot be used, the last ones are.
        """
        if self.connection.read_again is not None:
            try:
                self._use(self.connection.read_again())
            except (OSError, KubeconfigRefused) as error:
                fields = {"message": str(error), "alarm": True}
                _logger.warning("connection not read again", extra={"fields": fields})
        return self._context

    def _use(self, read: Connection) -> None:
        """Use another CA and another credential for the same server."""
        if read == self.connection:
            return
        if read.server != self.connection.server:
            raise KubeconfigRefused("another server needs a restart of the signer")
        self._context = client_context(read)
        self.connection = replace(read, read_again=self.connection.read_again)

    def target(self, path: str, query: Mapping[str, str]) -> str:
        """Return the request target of a path below the server's URL."""
        return self._prefix + path + (f"?{urlencode(query)}" if query else "")

    def headers(self) -> dict[str, str]:
        """Return the headers of every request; a token is read from its file each time."""
        headers = {"Accept": "application/json", "User-Agent": self._user_agent}
        token = self._token()
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        return headers

    def unexpected_status(self, request: str, status: int, content: bytes) -> ApiServerUnavailable:
        """Return the error for a status that the caller does not accept.

        The server's text goes to the operator's log alone.
        """
        if status == HTTPStatus.UNAUTHORIZED:
            self.unauthorized = True
        text = content[:500].decode(errors="replace")
        error = ApiServerUnavailable(
            f"the API server answered with status {status}", detail=f"{request}: {text}"
        )
        error.status = status
        return error

    def _token(self) -> str | None:
        if self.connection.token_file is not None:
            return self.connection.token_file.read_text(encoding="ascii").strip()
        return self.connection.token


def invalid_request() -> ApiServerUnavailable:
    """Return the error for a request that HTTP does not allow; it hides the token of the header."""
    return unreachable(ValueError("a header of the request is invalid"))


def unreachable(error: Exception) -> ApiServerUnavailable:
    """Return the error for a connection that fails, ends or takes too long."""
    detail = f"{type(error).__name__}: {error}"[:500]
    return ApiServerUnavailable("the API server cannot be reached", detail=detail)
