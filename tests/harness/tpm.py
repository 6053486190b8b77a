"""Software TPMs for nodes: swtpm processes with the content of a real node's TPM.

A new swtpm has PCRs of all zeros, and a TPM of swtpm_setup always has the same two endorsement keys
with certificates. Tests would not notice a mistake in what is read or compared. So every PCR of
every node is different here, and each test selects keys and certificates.

swtpm serves one connection at a time: while a client uses the TPM, all others wait.
"""

import hashlib
import os
import subprocess
import tempfile
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import Self

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from tests.harness.process import start, stop, wait_until_ready
from tests.harness.trust_domain import TrustDomain

__all__ = ["EndorsementKey", "SoftwareTpm", "TrustDomain"]

MEASURED_PCRS = range(16)
"""PCRs of firmware, boot loader and operating system. The others belong to applications."""

_PLATFORM_NV = "ppwrite|writedefine|ppread|ownerread|authread|no_da|platformcreate"
_TOOL_SECONDS = 60


@dataclass(frozen=True)
class _Places:
    """Handles of a key and its certificate in a TPM (TCG EK Credential Profile, section 2.2)."""

    persistent: int
    certificate: int


class EndorsementKey(Enum):
    """The kinds of endorsement key that a node may have."""

    RSA_2048 = _Places(0x81010001, 0x01C00002)
    P_256 = _Places(0x81010002, 0x01C0000A)
    P_384 = _Places(0x81010016, 0x01C00016)


_MADE_BY_SWTPM_SETUP = {EndorsementKey.RSA_2048, EndorsementKey.P_384}


class SoftwareTpm:
    """One node's TPM. A context manager that leaves no process and no file."""

    def __init__(
        self,
        domain: TrustDomain,
        *,
        seed: str,
        persistent: Collection[EndorsementKey] = (EndorsementKey.RSA_2048,),
        certificates: Collection[EndorsementKey] = (EndorsementKey.RSA_2048,),
        banks: Sequence[str] = ("sha256",),
    ) -> None:
        """Manufacture a TPM and start it.

        Args:
            domain: The authority that certifies its endorsement keys.
            seed: What was booted: only equal seeds give equal PCRs.
            persistent: The endorsement keys with a persistent handle.
            certificates: The endorsement keys with a certificate in the TPM.
            banks: The PCR banks that are active.
        """
        self._domain = domain
        self._seed = seed
        self._banks = banks
        # A path of a socket has at most 107 bytes; those of pytest are often longer.
        self._directory = tempfile.TemporaryDirectory(prefix="tpm-")
        self._state = Path(self._directory.name, "state")
        self._state.mkdir()
        self.tcti = f"swtpm:path={self._directory.name}/sock"
        """TCTI configuration for tpm2-tss and programs that use it."""
        self.pcrs: dict[str, dict[int, bytes]] = {}
        """Expected value of every measured PCR per bank: calculated, not read."""
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self._manufacture()
            self._start()
            self._provide(persistent, certificates)
        except BaseException:
            self.close()
            raise

    @property
    def directory(self) -> Path:
        """The directory with its sockets, `sock` and `sock.ctrl`."""
        return Path(self._directory.name)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Switch it off and remove its files."""
        self.power_off()
        self._directory.cleanup()

    def run(self, tool: str, *arguments: str | Path) -> str:
        """Run one of tpm2-tools with this TPM and return its output."""
        environment = os.environ | {"TPM2TOOLS_TCTI": self.tcti}
        command = [f"tpm2_{tool}", *arguments]
        done = subprocess.run(
            command,
            check=False,
            env=environment,
            capture_output=True,
            text=True,
            timeout=_TOOL_SECONDS,
            cwd=self._directory.name,
        )
        if done.returncode:
            raise RuntimeError(f"{' '.join(map(str, command))}: {done.stderr}")
        return done.stdout

    def power_off(self) -> None:
        """Kill the process, like a power cut; the content of NV remains."""
        if self._process is not None:
            stop(self._process)
            self._process = None

    def power_cycle(self, *, seed: str | None = None, orderly: bool = True) -> None:
        """Reboot the node, into another system if there is a new seed.

        An orderly reboot sends TPM2_Shutdown first, as kernels do. Otherwise the TPM counts a power
        failure.
        """
        if orderly:
            self.run("shutdown", "--clear")
        self.power_off()
        self._seed = self._seed if seed is None else seed
        self._start()

    def boot(self, measurements: Sequence[tuple[int, bytes]]) -> None:
        """Reboot the node into a system that measures exactly these events, in this order."""
        self.run("shutdown", "--clear")
        self.power_off()
        self._start(measurements)

    def clear(self) -> None:
        """Do what TPM2_Clear does: change the owner.

        Persistent keys are deleted. Endorsement keys and their certificates remain the same.
        """
        self.run("clear", "--auth-hierarchy", "platform")

    def extend(self, pcr: int, data: bytes) -> None:
        """Measure `data` into a PCR, in every active bank."""
        self._extend([(pcr, data)])

    def endorsement_public_key(self, key: EndorsementKey) -> RSAPublicKey | EllipticCurvePublicKey:
        """Return a key that is persistent here."""
        output = Path(self._directory.name, "public.pem")
        self.run("readpublic", "-c", hex(key.value.persistent), "-f", "pem", "-o", output)
        public = load_pem_public_key(output.read_bytes())
        if not isinstance(public, RSAPublicKey | EllipticCurvePublicKey):
            raise TypeError(f"no endorsement key is of type {type(public)}")
        return public

    def remove_persistent(self, key: EndorsementKey) -> None:
        """Remove the persistent handle; the key can be created again from its template."""
        self.run("evictcontrol", "-C", "owner", "-c", hex(key.value.persistent))

    def certificate(self, key: EndorsementKey) -> bytes:
        """Return the certificate that the TPM holds for a key, as DER."""
        output = Path(self._directory.name, "nv")
        self.run("nvread", hex(key.value.certificate), "-C", "owner", "-o", output)
        return output.read_bytes()

    def write_nv(self, index: int, data: bytes) -> None:
        """Define an index as a manufacturer does, and fill it."""
        source = Path(self._directory.name, "nv")
        source.write_bytes(data)
        size = str(len(data))
        self.run("nvdefine", hex(index), "-C", "platform", "-s", size, "-a", _PLATFORM_NV)
        self.run("nvwrite", hex(index), "-C", "platform", "-i", source)

    def remove_nv(self, index: int) -> None:
        """Remove an index and its content."""
        self.run("nvundefine", hex(index), "-C", "platform")

    def _manufacture(self) -> None:
        """Make the TPM's seeds and the keys and certificates that swtpm_setup knows."""
        subprocess.run(
            [
                "swtpm_setup", "--tpm2", "--tpmstate", f"dir://{self._state}",
                # As root it would switch to another user, who cannot read the trust domain.
                "--runas", str(os.getuid()),
                "--config", self._domain.configuration, "--vmid", self._seed,
                "--create-ek-cert", "--pcr-banks", ",".join(self._banks),
            ],
            check=True,
            capture_output=True,
        )  # fmt: skip

    def _start(self, measurements: Sequence[tuple[int, bytes]] | None = None) -> None:
        """Power on, and measure the events of the seed unless other measurements are given."""
        directory = Path(self._directory.name)
        log, pid = directory / "log", directory / "pid"
        pid.unlink(missing_ok=True)
        self._process = start(
            [
                "swtpm", "socket", "--tpm2", "--tpmstate", f"dir={self._state}",
                "--server", f"type=unixio,path={directory}/sock",
                "--ctrl", f"type=unixio,path={directory}/sock.ctrl",
                "--flags", "not-need-init,startup-clear", "--pid", f"file={pid}",
            ],
            log=log,
        )  # fmt: skip
        # It writes its process ID when it already listens.
        wait_until_ready(
            self._process,
            lambda: pid.exists() and pid.stat().st_size > 0,
            what="swtpm listens",
            log=log,
        )
        self.pcrs = {
            bank: dict.fromkeys(MEASURED_PCRS, bytes(hashlib.new(bank).digest_size))
            for bank in self._banks
        }
        if measurements is None:
            measurements = [(pcr, f"{self._seed}/{pcr}".encode()) for pcr in MEASURED_PCRS]
        self._extend(measurements)

    def _extend(self, measurements: Sequence[tuple[int, bytes]]) -> None:
        """Extend PCRs of the TPM and of the expected values."""
        arguments = []
        for pcr, data in measurements:
            digests = {bank: hashlib.new(bank, data).digest() for bank in self._banks}
            arguments.append(f"{pcr}:" + ",".join(f"{b}={d.hex()}" for b, d in digests.items()))
            for bank, digest in digests.items():
                self.pcrs[bank][pcr] = hashlib.new(bank, self.pcrs[bank][pcr] + digest).digest()
        self.run("pcrextend", *arguments)

    def _provide(
        self,
        persistent: Collection[EndorsementKey],
        certificates: Collection[EndorsementKey],
    ) -> None:
        """Add keys that swtpm_setup does not create, and remove those that are not requested."""
        if EndorsementKey.P_256 in {*persistent, *certificates}:
            key = EndorsementKey.P_256
            self.run("createek", "-G", "ecc", "-c", hex(key.value.persistent))
            public = self.endorsement_public_key(key)
            if key in certificates:
                der = self._domain.certify(public, subject=self._seed)
                self.write_nv(key.value.certificate, der)
            if key not in persistent:
                self.remove_persistent(key)
        for key in _MADE_BY_SWTPM_SETUP - set(persistent):
            self.remove_persistent(key)
        for key in _MADE_BY_SWTPM_SETUP - set(certificates):
            self.remove_nv(key.value.certificate)
