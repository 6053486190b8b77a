"""HTTP connections that end with a deadline: to the API server and to metadata services.

The timeout of a socket starts again with each byte that arrives. A server that sends one byte now
and then (in its headers, as endless `100 Continue`, in a proxy's answer to CONNECT) would hold its
caller indefinitely. Every socket of these connections therefore gets, before each read and write, a
timeout that ends with the deadline.

Nothing comes from the environment: no proxy, no certificate authority, no `.netrc`. A request is
sent once: redirects are not followed, and failures are not retried.
"""

import socket
import ssl
from base64 import b64encode
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

from urllib3 import (
    BaseHTTPResponse,
    HTTPConnectionPool,
    HTTPSConnectionPool,
    PoolManager,
    ProxyManager,
    Timeout,
)
from urllib3.connection import HTTPConnection, HTTPSConnection

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

DEFAULT_HEADERS: Final = {
    "Accept-Encoding": "identity",
    "User-Agent": "kubelet-authenticator-tpm",
}

AUTHORITIES: Final = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/tls/cacert.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
)
"""Where systems keep their authorities, in the order of Go's crypto/x509, which client-go uses."""

Remaining = Callable[[], float]
"""Returns the seconds that are left; zero or less when the time has passed."""


def bounded_pool(
    remaining: Remaining,
    *,
    tls: ssl.SSLContext | None = None,
    server_name: str | None = None,
    proxy: str | None = None,
) -> PoolManager:
    """Return connections for HTTPS with this context, or for plain HTTP without one.

    They know no other scheme. `server_name` replaces the URL's host in SNI and in the verification
    of the server's certificate. Only the context's authorities verify the server.
    """
    plain_class, tls_class = _socket_classes(remaining)
    options: dict[str, Any] = {}
    if tls is not None:
        tls.sslsocket_class = tls_class
        options["ssl_context"] = tls
    if server_name is not None:
        options["server_hostname"] = server_name
    if proxy is None:
        manager = PoolManager(**options)
    else:
        manager = ProxyManager(proxy, **_proxy_options(proxy, tls_class), **options)
    scheme = "http" if tls is None else "https"
    manager.key_fn_by_scheme = {scheme: manager.key_fn_by_scheme[scheme]}
    manager.pool_classes_by_scheme = _pool_classes(plain_class)
    return manager


def send_once(  # noqa: PLR0913 - what one HTTP request consists of
    pool: PoolManager,
    method: str,
    url: str,
    *,
    headers: Mapping[str, str],
    timeouts: tuple[float, float],
    body: bytes | None = None,
) -> BaseHTTPResponse:
    """Send a request; return the response before its body is read.

    `timeouts` are the seconds to connect, and of silence. The body is not decompressed.
    Raises `HTTPError` of urllib3, `HTTPException`, `OSError`.
    """
    return pool.request(
        method,
        url,
        body=body,
        headers=headers,
        timeout=Timeout(connect=timeouts[0], read=timeouts[1]),
        redirect=False,
        retries=False,
        preload_content=False,
        decode_content=False,
    )


def _proxy_options(proxy: str, tls_class: type[ssl.SSLSocket]) -> dict[str, Any]:
    """Return the credentials in the proxy's URL as a header, and how its certificate is verified.

    The certificate of an https proxy is verified with the system's authorities, as client-go does.
    The OpenSSL of the bundled CPython knows no place of them.
    """
    options: dict[str, Any] = {}
    parts = urlsplit(proxy)
    if parts.username is not None:
        credentials = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        basic = b64encode(credentials.encode()).decode()
        options["proxy_headers"] = {"Proxy-Authorization": f"Basic {basic}"}
    if parts.scheme == "https":
        cafile = next((path for path in AUTHORITIES if Path(path).exists()), None)
        options["proxy_ssl_context"] = ssl.create_default_context(cafile=cafile)
        options["proxy_ssl_context"].sslsocket_class = tls_class
    return options


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
