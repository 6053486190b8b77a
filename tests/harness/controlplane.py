"""A real API server with its etcd and an administrator for set-up."""

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Self

from tests.harness import kubeconfig, pki
from tests.harness.client import ApiError, Client
from tests.harness.process import free_port, start, stop, wait_until, wait_until_ready

HOST = "127.0.0.1"
SERVICE_NETWORK = "10.96.0.0/16"
SERVICE_ADDRESS = "10.96.0.1"
ADMINISTRATORS = "system:masters"
ISSUER = "https://kubernetes.default.svc.cluster.local"


class KubectlFailed(Exception):
    """kubectl ended with an error; the text is its stderr."""


class ApiServer:
    """etcd and kube-apiserver of one cluster, with one authority for servers and clients.

    The API server can be stopped and started again on the same port and data.
    """

    def __init__(  # noqa: PLR0913 - the differences between clusters
        self,
        name: str,
        directory: Path,
        assets: Path,
        *,
        key: pki.PrivateKey | None = None,
        host: str = HOST,
        port: int | None = None,
    ) -> None:
        """Prepare everything. Clients connect to `host`, by default on a free port."""
        self.name = name
        self.directory = directory
        self.assets = assets
        self.authority = pki.Authority.make(name, key or pki.ec_key())
        self.client_authority = self.authority
        """Issuer of client certificates; with kubeadm the same authority until it is rotated."""
        self.host = host
        self.url = f"https://{host}:{port or free_port()}"
        self.admin_config = directory / "admin.conf"
        self._etcd = f"http://{HOST}:{free_port()}"
        self._etcd_peers = f"http://{HOST}:{free_port()}"
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        for path in (directory, directory / "pki"):
            path.mkdir()
        self._write_certificates()
        self.admin = Client(
            server=self.url,
            authority=directory / "pki/ca.crt",
            certificate=(directory / "pki/admin.crt", directory / "pki/admin.key"),
        )

    def start(self) -> None:
        """Start everything and wait until objects can be created."""
        self.start_etcd()
        self.start_apiserver()
        wait_until(self._has_own_objects, what=f"{self.name} has created its own objects")

    def start_etcd(self) -> None:
        """Start only etcd, and wait until it is ready."""
        self._run(
            "etcd",
            f"--data-dir={self.directory / 'etcd'}",
            f"--listen-client-urls={self._etcd}",
            f"--advertise-client-urls={self._etcd}",
            f"--listen-peer-urls={self._etcd_peers}",
            f"--initial-advertise-peer-urls={self._etcd_peers}",
            f"--initial-cluster=default={self._etcd_peers}",
            "--unsafe-no-fsync",
        )
        store = Client(server=self._etcd, authority=self.directory / "pki/ca.crt")
        self._wait("etcd", store.ready)

    def compact(self) -> None:
        """Let etcd forget all versions before the present one."""
        store = Client(server=self._etcd, authority=self.directory / "pki/ca.crt")
        revision = store.create("/v3/kv/range", {"key": "AA=="})["header"]["revision"]
        store.create("/v3/kv/compaction", {"revision": revision, "physical": True})

    def backdate(self, resource: str, name: str, created: str) -> None:
        """Let a custom resource without namespace have been created at another time."""
        store = Client(server=self._etcd, authority=self.directory / "pki/ca.crt")
        key = base64.b64encode(f"/registry/{resource}/{name}".encode()).decode()
        [stored] = store.create("/v3/kv/range", {"key": key})["kvs"]
        body = json.loads(base64.b64decode(stored["value"]))
        body["metadata"]["creationTimestamp"] = created
        value = base64.b64encode(json.dumps(body).encode()).decode()
        store.create("/v3/kv/put", {"key": key, "value": value})

    def _copy_etcd(self, source: str, target: str) -> None:
        """Replace the data of etcd or of a backup; the API server must be stopped."""
        self._end("etcd")
        shutil.rmtree(self.directory / target, ignore_errors=True)
        shutil.copytree(self.directory / source, self.directory / target)
        self.start_etcd()

    def stop(self) -> None:
        """Stop all programs that run."""
        for program in reversed(list(self._running)):
            self._end(program)
        # Logs stay; the data are 64 MB without use.
        shutil.rmtree(self.directory / "etcd", ignore_errors=True)

    def start_apiserver(self) -> None:
        """Start only the API server, and wait until it is ready."""
        self._run("kube-apiserver", *self._apiserver_flags())
        self._wait("kube-apiserver", self.admin.ready)

    def stop_apiserver(self) -> None:
        """Stop the API server; port and data stay the same."""
        self._end("kube-apiserver")

    def restart_apiserver(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Restart the API server."""
        self.stop_apiserver()
        meanwhile()
        self.start_apiserver()

    def back_up(self) -> None:
        """Save the state of etcd."""
        self.restart_apiserver(lambda: self._copy_etcd("etcd", "backup"))

    def restore(self) -> None:
        """Bring back the saved state, whose resource versions are earlier than the present one."""
        self.restart_apiserver(lambda: self._copy_etcd("backup", "etcd"))

    def pids(self) -> list[int]:
        """Return the process IDs of its programs."""
        return [program.pid for program in self._running.values()]

    def client(self, common_name: str, *organisations: str) -> Client:
        """Return a client with a new certificate."""
        pair = self.client_authority.client(common_name, *organisations)
        files = self._write_pair(common_name.replace(":", "-"), pair)
        return Client(server=self.url, authority=self.admin.authority, certificate=files)

    def with_token(self, token: str) -> Client:
        """Return a client that authenticates with a token."""
        return Client(server=self.url, authority=self.admin.authority, token=token)

    def kubectl(self, *arguments: str, stdin: str = "", config: Path | None = None) -> str:
        """Run kubectl and return its output, by default as administrator.

        Raises `KubectlFailed`: it ended with an error.
        """
        done = subprocess.run(
            [self.assets / "kubectl", f"--kubeconfig={config or self.admin_config}", *arguments],
            input=stdin,
            env=self._environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise KubectlFailed(done.stderr)
        return done.stdout

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _run(self, program: str, *flags: str) -> None:
        argv: list[str | Path] = [self.assets / program, *flags]
        self._running[program] = start(argv, log=self._log(program), env=self._environment())

    def _wait(self, program: str, ready: Callable[[], bool]) -> None:
        what = f"{program} of {self.name} is ready"
        wait_until_ready(self._running[program], ready, what=what, log=self._log(program))

    def _end(self, program: str) -> None:
        # An API server waits ten seconds for open watches. Tests want a crash.
        stop(self._running.pop(program), seconds=1)

    def _log(self, program: str) -> Path:
        return self.directory / f"{program}.log"

    def _environment(self) -> dict[str, str]:
        return {"PATH": os.defpath, "HOME": str(self.directory)}

    def _apiserver_flags(self) -> list[str]:
        pki_directory = self.directory / "pki"
        return [
            f"--bind-address={self.host}",
            f"--advertise-address={self.host}",
            f"--secure-port={self.url.rpartition(':')[2]}",
            f"--etcd-servers={self._etcd}",
            f"--client-ca-file={pki_directory / 'clients.crt'}",
            f"--tls-cert-file={pki_directory / 'apiserver.crt'}",
            f"--tls-private-key-file={pki_directory / 'apiserver.key'}",
            f"--service-account-issuer={ISSUER}",
            f"--service-account-key-file={pki_directory / 'sa.pub'}",
            f"--service-account-signing-key-file={pki_directory / 'sa.key'}",
            f"--service-cluster-ip-range={SERVICE_NETWORK}",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            "--enable-bootstrap-token-auth",
            # A loopback address is not a valid endpoint, and no test needs one.
            "--endpoint-reconciler-type=none",
        ]

    def _has_own_objects(self) -> bool:
        try:
            self.admin.get("/api/v1/namespaces/kube-system")
            self.admin.get("/api/v1/namespaces/default/services/kubernetes")
        except ApiError as error:
            if error.code != 404:
                raise
            return False
        return True

    def _write_certificates(self) -> None:
        names = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost")
        accounts = pki.ec_key()
        self._write_pair("ca", self.authority.pair)
        self._write_pair("apiserver", self.authority.server(*names, self.host, SERVICE_ADDRESS))
        (self.directory / "pki/sa.key").write_bytes(pki.key_pem(accounts))
        (self.directory / "pki/sa.pub").write_bytes(pki.public_pem(accounts))
        self._write_client_authority()

    def _write_client_authority(self) -> None:
        """Trust the clients of one authority, and create an administrator with it."""
        admin = self.client_authority.client("kubernetes-admin", ADMINISTRATORS)
        self._write_pair("clients", self.client_authority.pair)
        self._write_pair("admin", admin)
        text = kubeconfig.with_certificate(self.url, self.authority.pair.certificate, admin)
        self.admin_config.write_text(text)

    def _write_pair(self, name: str, pair: pki.Pair) -> tuple[Path, Path]:
        certificate, key = (self.directory / "pki" / f"{name}.{end}" for end in ("crt", "key"))
        certificate.write_bytes(pair.certificate)
        key.write_bytes(pair.key)
        return certificate, key
