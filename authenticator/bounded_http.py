"""HTTP sessions that end with a deadline: for the API server and for metadata services.

The timeout of a socket starts again with each byte that arrives. A server that sends one byte now
and then (in its headers, as endless `100 Continue`, in a proxy's answer to CONNECT) would hold its
caller indefinitely. Every socket of these sessions therefore gets, before each read and write, a
timeout that ends with the deadline.

A session takes nothing from the environment: no proxy, no certificate authority, no `.netrc`.
"""

import socket
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import requests
from requests.adapters import HTTPAdapter
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool, PoolManager, Retry
from urllib3.connection import HTTPConnection, HTTPSConnection

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

NO_RETRIES: Final = Retry(total=0, read=False, redirect=False)

Remaining = Callable[[], float]
"""Returns the seconds that are left; zero or less when the time has passed."""


def bounded_session(
    remaining: Remaining, *, tls: ssl.SSLContext | None = None, server_name: str | None = None
) -> requests.Session:
    """Return a session for HTTPS with this context, or for plain HTTP without one.

    It knows no other scheme. `server_name` replaces the URL's host in SNI and in the verification
    of the server's certificate.
    """
    session = requests.Session()
    session.trust_env = False
    session.adapters.clear()
    session.mount("http://" if tls is None else "https://", _Adapter(remaining, tls, server_name))
    return session


class _Adapter(HTTPAdapter):
    """Gives bounded sockets and one TLS context, to which it adds nothing, to every pool."""

    def __init__(
        self, remaining: Remaining, tls: ssl.SSLContext | None, server_name: str | None
    ) -> None:
        self._sockets = _socket_classes(remaining)
        self._tls: dict[str, Any] = {}
        if tls is not None:
            tls.sslsocket_class = self._sockets[1]
            self._tls["ssl_context"] = tls
        if server_name is not None:
            self._tls["server_hostname"] = server_name
        super().__init__(max_retries=NO_RETRIES)

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - the base's
        """Bound direct connections."""
        kwargs.update(self._tls)
        super().init_poolmanager(*args, **kwargs)
        self._bound(self.poolmanager)

    def proxy_manager_for(self, proxy: str, **kwargs: Any) -> Any:  # noqa: ANN401 - the base's
        """Bound connections to a proxy and through it.

        The certificate of an https proxy is verified with the system's authorities, as client-go
        does.
        """
        if proxy.lower().startswith("https:"):
            kwargs["proxy_ssl_context"] = ssl.create_default_context()
            kwargs["proxy_ssl_context"].sslsocket_class = self._sockets[1]
        manager = super().proxy_manager_for(proxy, **kwargs, **self._tls)
        self._bound(manager)
        return manager

    def cert_verify(self, conn: Any, url: str, verify: object, cert: object) -> None:  # noqa: ANN401 - the base's
        """Add no authorities: the base class would load the public ones into the context."""

    def _bound(self, manager: PoolManager) -> None:
        manager.pool_classes_by_scheme = _pool_classes(self._sockets[0])


def _pool_classes(bounded: type[socket.socket]) -> dict[str, type[HTTPConnectionPool]]:
    """Return urllib3's pools with connections whose sockets are of the class `bounded`."""

    class Connection(HTTPConnection):
        def _new_conn(self) -> socket.socket:
            connected = super()._new_conn()
            timeout = connected.gettimeout()
            replacement = bounded(fileno=connected.detach())
            replacement.settimeout(timeout)
            return replacement

    class TlsConnection(Connection, HTTPSConnection):
        pass

    class Pool(HTTPConnectionPool):
        ConnectionCls = Connection

    class TlsPool(HTTPSConnectionPool):
        ConnectionCls = TlsConnection

    return {"http": Pool, "https": TlsPool}


def _socket_classes(remaining: Remaining) -> tuple[type[socket.socket], type[ssl.SSLSocket]]:
    """Return a plain and a TLS socket that read and write while time remains, and no longer."""

    class Bounded(socket.socket):
        def _set_timeout(self) -> None:
            left, silence = remaining(), self.gettimeout()
            if left <= 0:
                raise TimeoutError("the deadline has passed")
            self.settimeout(left if silence is None else min(left, silence))

        def recv(self, buflen: int = 1024, flags: int = 0) -> bytes:
            self._set_timeout()
            return super().recv(buflen, flags)

        def recv_into(
            self, buffer: "WriteableBuffer", nbytes: int | None = None, flags: int = 0
        ) -> int:
            self._set_timeout()
            return super().recv_into(buffer, nbytes or 0, flags)

        def send(self, data: "ReadableBuffer", flags: int = 0) -> int:
            self._set_timeout()
            return super().send(data, flags)

        def sendall(self, data: "ReadableBuffer", flags: int = 0) -> None:
            self._set_timeout()
            super().sendall(data, flags)

    class BoundedTls(Bounded, ssl.SSLSocket):
        """Its handshake is one call of OpenSSL, for which the socket's own timeout is enough."""

    return Bounded, BoundedTls
