"""Clusters whose host names no name server answers: the others do not notice them."""

import re
import secrets
import shlex
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Self

import pytest

from tests.harness import kubeconfig
from tests.harness.fleet import Fleet
from tests.harness.machines import Machines
from tests.harness.process import wait_until
from tests.harness.programs import SIGNER
from tests.harness.signer import OPT_IN, Signer
from tests.integration.relays import PATIENCE

COUNT = 40
"""Clusters: more than any number of threads that all share."""
ADDRESS = (f"127.53.{secrets.randbelow(256)}.{1 + secrets.randbelow(254)}", 53)
"""A resolver asks no other port; other test runs have other addresses."""


class SilentNameServer:
    """Notes the names that it is asked for, and never answers. A context manager."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(ADDRESS)
        self._names: set[bytes] = set()
        self._thread = Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.sendto(b"", ADDRESS)
        self._thread.join()
        self._socket.close()

    def forget(self) -> None:
        self._names.clear()

    def wait_for_all(self) -> None:
        """Wait until a look-up of each name is outstanding: each takes minutes."""
        wait_until(lambda: len(self._names) >= COUNT, what="all names are looked up")

    def _run(self) -> None:
        while query := self._socket.recv(4096):
            self._names |= set(re.findall(rb"silent-[0-9a-f]+-\d+", query))


@contextmanager
def silent_clusters(fleet: Fleet) -> Iterator[None]:
    """Create Clusters in a namespace of their own, and delete them at the end."""
    namespace = f"silent-{secrets.token_hex(4)}"
    names = [f"{namespace}-{number}" for number in range(COUNT)]
    management = fleet.management
    management.create_namespace(namespace)
    ca = fleet.first.workload.authority.pair.certificate
    for name in names:
        url = f"https://{name}.invalid:6443"
        management.create_cluster(namespace, name, endpoint=url, annotations=OPT_IN)
        management.store_kubeconfig(namespace, name, kubeconfig.with_token(url, ca, "t"))
    try:
        yield
    finally:
        for name in names:
            path = f"/apis/cluster.x-k8s.io/v1beta2/namespaces/{namespace}/clusters/{name}"
            management.admin.delete(path)


def program(directory: Path) -> Path:
    """Return a program that runs the signer with this name server alone."""
    resolver, path = directory / "resolv.conf", directory / "resolving-signer"
    resolver.write_text(f"nameserver {ADDRESS[0]}\noptions timeout:30 attempts:5\n")
    mount = f"mount --bind {shlex.quote(str(resolver))} /etc/resolv.conf"
    run = f'{mount} && exec {shlex.quote(str(SIGNER))} "$@"'
    path.write_text(f'#!/bin/sh\nexec unshare --mount sh -c {shlex.quote(run)} sh "$@"\n')
    path.chmod(0o755)
    return path


@pytest.mark.usefixtures("signer")
def test_node_joins_while_forty_names_are_looked_up(
    fleet: Fleet, machines: Machines, signer: Signer, tmp_path: Path
) -> None:
    """They held all threads: no Cluster was served after a start, and none came back after a cut.

    After a start, after a restart of the healthy API server, and after one of the signer.
    """
    signer.stop()
    try:
        with SilentNameServer() as names, silent_clusters(fleet):
            restarted = Signer(fleet, tmp_path / "signer")
            restarted.program = program(tmp_path)
            for _ in range(2):
                names.forget()
                with restarted:
                    restarted.wait_until_ready()
                    names.wait_for_all()
                    assert machines.registered(settings=PATIENCE).call().status == 0
                    fleet.first.workload.restart_apiserver()
                    assert machines.registered(settings=PATIENCE).call().status == 0
                    assert restarted.ask("/readyz").ok
    finally:
        signer.start()
        signer.wait_until_ready()
