#!/usr/bin/env python3
"""Make the golden vectors with openssl, tpm2-tools, swtpm and Go, without this project's code.

Both programs share `common`, so a mistake in it would agree with itself; these files would not. Run
this script by hand (`tests/vectors/build.py`) with openssl 3, tpm2-tools 5, swtpm and Go on the
path. Each run makes other, equally valid files, with fresh keys. The private keys in them protect
nothing.
"""

import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).resolve().parent

# TCG EK Credential Profile 2.5, B.3: PolicySecret(TPM_RH_ENDORSEMENT); policy B for both hashes.
POLICY_A_SHA256 = "837197674484b3f81a90cc8d46a5d724fd52d76e06520b64f2a1da1b331469aa"
POLICY_B_SHA256 = "ca3d0a99a2b93906f7a3342414efcfb3a385d44cd1fd459089d19b5071c0b7a0"
POLICY_B_SHA384 = (
    "b26e7d28d11a50bc53d882bcf5fd3a1a074148bb35d3b4e4cb1c0ad9bde419ca"
    "cb47ba09699646150f9fc000f3f80e12"
)

# Name, openssl's key options, TPMT_PUBLIC up to the unique field, after the profile's templates.
ENDORSEMENT_KEYS = (
    (
        "rsa-2048-sha256-aes128",
        ("RSA", "rsa_keygen_bits:2048"),
        f"0001000b000300b20020{POLICY_A_SHA256}00060080004300100800" + "00000000",
    ),
    (
        "rsa-3072-sha384-aes256",
        ("RSA", "rsa_keygen_bits:3072"),
        f"0001000c000300f20030{POLICY_B_SHA384}00060100004300100c00" + "00000000",
    ),
    (
        "p256-sha256-aes128",
        ("EC", "ec_paramgen_curve:P-256"),
        f"0023000b000300b20020{POLICY_A_SHA256}00060080004300100003" + "0010",
    ),
    (
        "p256-sha256-high",
        ("EC", "ec_paramgen_curve:P-256"),
        f"0023000b000300f20020{POLICY_B_SHA256}00060080004300100003" + "0010",
    ),
    (
        "p384-sha384-aes256",
        ("EC", "ec_paramgen_curve:P-384"),
        f"0023000c000300f20030{POLICY_B_SHA384}00060100004300100004" + "0010",
    ),
)

AK_TEMPLATES = (
    ("rsa", "rsa2048:rsassa-sha256:null"),
    ("rsapss", "rsa2048:rsapss-sha256:null"),
    ("ecc", "ecc256:ecdsa-sha256:null"),
)
AK_ATTRIBUTES = "fixedtpm|fixedparent|sensitivedataorigin|userwithauth|restricted|sign"

QUOTES = (
    ("sha256:0,1,2,3,4,5,6,7", "ecc", "ecdsa"),
    ("sha256:0,1,2,3,4,5,6,7", "rsa", "rsassa"),
    ("sha256:0,7,23", "rsapss", "rsapss"),
    ("sha1:0,10+sha256:7,14+sha384:1", "ecc", "ecdsa"),
)


def run(*command: str | bytes | Path, feed: bytes = b"") -> bytes:
    """Run a program; return what it prints."""
    return subprocess.run(command, input=feed, check=True, capture_output=True).stdout


def version(*command: str) -> str:
    """Return the first line of a program's version."""
    return run(*command).decode().splitlines()[0]


def write(name: str, made_with: Sequence[str], cases: list[dict[str, object]]) -> None:
    """Write one file of cases with its provenance."""
    document = {"made_by": "tests/vectors/build.py", "made_with": made_with, "cases": cases}
    (HERE / name).write_text(json.dumps(document, indent=1) + "\n")


# Key derivation, by openssl


def kdf_cases() -> list[dict[str, object]]:
    """KDFa is SP 800-108 in counter mode, KDFe the one-step KDF of SP 800-56C."""
    cases: list[dict[str, object]] = []
    for digest, size in (("sha256", 32), ("sha384", 48), ("sha512", 64)):
        for label, bits in (("STORAGE", 128), ("STORAGE", 256), ("INTEGRITY", size * 8)):
            cases.append(kdf_a(digest, bytes(range(size)), label, f"000b{'5a' * 32}", bits))
        cases.append(kdf_a(digest, b"\xff" * size, "LONGER", "", size * 16 - 8))
        cases.append(kdf_e(digest, bytes(range(32)), "IDENTITY", size))
    return cases


def kdf_a(digest: str, key: bytes, label: str, context: str, bits: int) -> dict[str, object]:
    """Derive with KBKDF; openssl calls the label salt and the context info."""
    options = [
        "mode:counter",
        "mac:HMAC",
        f"digest:{digest}",
        f"hexkey:{key.hex()}",
        f"salt:{label}",
    ]
    if context:
        options.append(f"hexinfo:{context}")
    result = derive("KBKDF", bits // 8, options)
    names = {"kdf": "a", "digest": digest, "key": key.hex(), "label": label, "bits": bits}
    return names | {"context": context, "result": result}


def kdf_e(digest: str, z: bytes, label: str, size: int) -> dict[str, object]:
    """Derive with SSKDF; the label and its NUL begin the info."""
    party_u, party_v = "00" + "a1" * 31, "b2" * 32
    info = f"{label.encode().hex()}00{party_u}{party_v}"
    options = [f"digest:{digest}", f"hexkey:{z.hex()}", f"hexinfo:{info}"]
    result = derive("SSKDF", size, options)
    names = {"kdf": "e", "digest": digest, "key": z.hex(), "label": label, "bits": size * 8}
    return names | {"party_u": party_u, "party_v": party_v, "result": result}


def derive(kdf: str, size: int, options: list[str]) -> str:
    """Run `openssl kdf`; return lower-case hex."""
    arguments = [word for option in options for word in ("-kdfopt", option)]
    printed = run("openssl", "kdf", "-keylen", str(size), *arguments, kdf)
    return printed.decode().strip().replace(":", "").lower()


# HMACs of the exchange, by openssl, over fields written by hand

CHALLENGE_KEY = "5c" * 32
CHALLENGE_FIELDS = (
    ("0000000c", b"challenge/v1".hex()),
    ("00000024", b"99999999-8888-4777-8666-555555555555".hex()),
    ("00000032", b"cluster.x-k8s.io/kube-apiserver-client-kubelet-tpm".hex()),
    ("00000017", b"system:bootstrap:abcdef".hex()),
    ("00000024", b"11111111-2222-4333-8444-555555555555".hex()),
    ("00000014", b"2026-11-21T06:40:00Z".hex()),
    ("00000020", "a1" * 32),
    ("00000020", "b2" * 32),
    ("00000022", "000b" + "c3" * 32),
)
ANSWER_FIELDS = (
    ("00000009", b"answer/v1".hex()),
    ("0000002c", b"kubelet-tpm-00112233445566778899aabbccddeeff".hex()),
    ("00000020", "a1" * 32),
    ("00000004", b"3600".hex()),
    ("0000001d", b"client auth,digital signature".hex()),
    ("0000000d", b"eventLog,pcrs".hex()),
)
ANSWER_FIELDS_WITHOUT_EXPIRATION = (*ANSWER_FIELDS[:3], ("00000000", ""), *ANSWER_FIELDS[4:])


def digest_cases() -> list[dict[str, object]]:
    """Return key ID, secret and extraData by docs/protocol.md section 3."""
    secret = mac(CHALLENGE_KEY, CHALLENGE_FIELDS)
    return [
        {"name": "key id", "result": mac(CHALLENGE_KEY, (("", b"key id".hex()),))[:16]},
        {"name": "secret", "result": secret},
        {"name": "extraData", "result": mac(secret, ANSWER_FIELDS)},
        {
            "name": "extraData without expirationSeconds",
            "result": mac(secret, ANSWER_FIELDS_WITHOUT_EXPIRATION),
        },
    ]


def mac(key: str, fields: Sequence[tuple[str, str]]) -> str:
    """HMAC-SHA256 over lengths and fields, all in hex; return lower-case hex."""
    message = bytes.fromhex("".join(length + field for length, field in fields))
    options = ("-digest", "SHA256", "-macopt", f"hexkey:{key}", "-in", "-", "HMAC")
    return run("openssl", "mac", *options, feed=message).decode().strip().lower()


# MakeCredential, by tpm2-tools, for keys of openssl


def credential_cases(directory: Path) -> list[dict[str, object]]:
    """Wrap one secret for each type of endorsement key."""
    return [credential(directory, *key) for key in ENDORSEMENT_KEYS]


def credential(
    directory: Path, name: str, options: tuple[str, str], head: str
) -> dict[str, object]:
    """Wrap a secret for one endorsement key with a known private key."""
    algorithm, option = options
    private, public, blob, secret = (directory / f"{name}.{kind}" for kind in "kpbs")
    run("openssl", "genpkey", "-algorithm", algorithm, "-pkeyopt", option, "-out", private)
    area = bytes.fromhex(head) + unique(algorithm, private)
    public.write_bytes(len(area).to_bytes(2, "big") + area)
    secret.write_bytes(bytes(range(32)))
    object_name = "000b" + "c3" * 32
    run(
        *("tpm2_makecredential", "-Q", "-T", "none", "-u", public, "-s", secret),
        *("-n", object_name, "-o", blob),
    )
    # Magic 0xbadcc0de and version 1, then TPM2B_ID_OBJECT and TPM2B_ENCRYPTED_SECRET.
    wrapped = blob.read_bytes()[8:]
    end = 2 + int.from_bytes(wrapped[:2], "big")
    return {
        "name": name,
        "private_key": run("openssl", "pkey", "-in", private, "-outform", "DER").hex(),
        "spki": run("openssl", "pkey", "-in", private, "-pubout", "-outform", "DER").hex(),
        "ek_public": public.read_bytes().hex(),
        "object_name": object_name,
        "secret": secret.read_bytes().hex(),
        "credential_blob": wrapped[:end].hex(),
        "encrypted_secret": wrapped[end:].hex(),
    }


def unique(algorithm: str, private: Path) -> bytes:
    """Return a key's unique field from the output of openssl."""
    if algorithm == "RSA":
        line = run("openssl", "rsa", "-in", private, "-noout", "-modulus").decode()
        parts = [bytes.fromhex(line.strip().partition("=")[2])]
    else:
        spki = run("openssl", "pkey", "-in", private, "-pubout", "-outform", "DER")
        size = 32 if len(spki) < 100 else 48
        parts = [spki[-2 * size : -size], spki[-size:]]
    return b"".join(len(part).to_bytes(2, "big") + part for part in parts)


# Names and quotes, by swtpm


@contextmanager
def tpm(directory: Path, *flags: str) -> Iterator[str]:
    """Run a fresh swtpm; yield its TCTI, which expects the control socket next to the other."""
    state, server = directory / "state", directory / "socket"
    state.mkdir(parents=True)
    run("swtpm_setup", "--tpm2", "--tpmstate", state, "--pcr-banks", "sha1,sha256,sha384")
    command = [
        *("swtpm", "socket", "--tpm2", "--tpmstate", f"dir={state}", *flags),
        *("--server", f"type=unixio,path={server}", "--ctrl", f"type=unixio,path={server}.ctrl"),
    ]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        while not (server.exists() and Path(f"{server}.ctrl").exists()):
            time.sleep(0.01)
        try:
            yield f"swtpm:path={server}"
        finally:
            process.terminate()


def tpm_cases(directory: Path) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
    """Make keys and quotes in one TPM; return the cases of names.json and quotes.json."""
    with tpm(directory, "--flags", "startup-clear") as tcti:
        extend_all(tcti)
        names = [endorsement_key(directory, tcti, kind) for kind in ("rsa", "ecc")]
        attestation_keys = {
            kind: attestation_key(directory, tcti, kind, a) for kind, a in AK_TEMPLATES
        }
        quotes = [
            quote(directory, tcti, selection, kind, scheme)
            | {
                "public": attestation_keys[kind]["public"],
                "spki": attestation_keys[kind]["spki"],
            }
            for selection, kind, scheme in QUOTES
        ]
    return [*names, *attestation_keys.values()], quotes


def extend_all(tcti: str) -> None:
    """Extend all PCRs differently, for those of a fresh swtpm are equal. 17 to 22 need a DRTM."""
    for index in (*range(17), 23):
        digests = ",".join(
            f"{bank}={index + 1:02x}{'00' * (size - 1)}"
            for bank, size in (("sha1", 20), ("sha256", 32), ("sha384", 48))
        )
        run("tpm2_pcrextend", "-Q", "-T", tcti, f"{index}:{digests}")


def read_public(directory: Path, tcti: str, context: Path, what: str) -> dict[str, object]:
    """Read public area and Name from the TPM, and the key in the form of openssl."""
    public, name, der = (directory / f"{what}.{kind}" for kind in ("pub", "name", "der"))
    read = ("tpm2_readpublic", "-Q", "-T", tcti, "-c", context)
    run(*read, "-o", public, "-n", name)
    run(*read, "-f", "der", "-o", der)
    spki = run("openssl", "pkey", "-pubin", "-in", der, "-inform", "DER", "-outform", "DER")
    run("tpm2_flushcontext", "-Q", "-T", tcti, "-t")
    return {
        "name": what,
        "public": public.read_bytes().hex(),
        "tpm_name": name.read_bytes().hex(),
        "spki": spki.hex(),
    }


def endorsement_key(directory: Path, tcti: str, kind: str) -> dict[str, object]:
    """Make the endorsement key of the profile's template L-1 or L-2."""
    context = directory / f"ek-{kind}.ctx"
    run("tpm2_createek", "-Q", "-T", tcti, "-G", kind, "-c", context)
    run("tpm2_flushcontext", "-Q", "-T", tcti, "-t")
    return read_public(directory, tcti, context, f"ek-{kind}")


def attestation_key(directory: Path, tcti: str, kind: str, algorithm: str) -> dict[str, object]:
    """Make an attestation key of the protocol's template."""
    context = directory / f"ak-{kind}.ctx"
    run(
        *("tpm2_createprimary", "-Q", "-T", tcti, "-C", "e", "-g", "sha256", "-G", algorithm),
        *("-a", AK_ATTRIBUTES, "-c", context),
    )
    run("tpm2_flushcontext", "-Q", "-T", tcti, "-t")
    return read_public(directory, tcti, context, f"ak-{kind}")


def quote(directory: Path, tcti: str, selection: str, kind: str, scheme: str) -> dict[str, object]:
    """Quote a selection, and read the same PCRs."""
    attest, signature, values = (directory / f"quote.{what}" for what in ("attest", "sig", "pcrs"))
    context = directory / f"ak-{kind}.ctx"
    run(
        *("tpm2_quote", "-Q", "-T", tcti, "-c", context, "-l", selection, "-q", "d4" * 32),
        *("-g", "sha256", "--scheme", scheme, "-m", attest, "-s", signature),
    )
    run("tpm2_flushcontext", "-Q", "-T", tcti, "-t")
    run("tpm2_pcrread", "-Q", "-T", tcti, selection, "-o", values)
    return {
        "name": f"{kind} {selection}",
        "selection": selection,
        "extra_data": "d4" * 32,
        "attest": attest.read_bytes().hex(),
        "signature": signature.read_bytes().hex(),
        "pcr_values": values.read_bytes().hex(),
    }


# An event log of a platform with an H-CRTM, by swtpm

HCRTM_EVENTS = (
    (0, "10000080", b"HCRTM", b"code of the H-CRTM"),
    (0, "08000000", b"version 1.0", b"version 1.0"),
    (0, "04000000", bytes(4), bytes(4)),
    (7, "04000000", bytes(4), bytes(4)),
)
"""PCR, type (little-endian), data in the log and measured bytes. No StartupLocality event."""
HCRTM_BANKS = (("sha256", "0b00", "2000"), ("sha384", "0c00", "3000"))
"""Name, algorithm and digest size, both little-endian."""


def write_hcrtm_log(directory: Path) -> None:
    """Measure as an H-CRTM and firmware do; write the log and the PCRs of the TPM."""
    with tpm(directory) as tcti:
        server = tcti.removeprefix("swtpm:path=")
        control = ("swtpm_ioctl", "--unix", f"{server}.ctrl")
        run(*control, "-i")
        # The hash sequence comes before TPM2_Startup, so the TPM starts PCR 0 at locality 4.
        run(*control, "-h", HCRTM_EVENTS[0][3])
        run("tpm2_startup", "-T", tcti, "-c")
        for pcr, _, _, measured in HCRTM_EVENTS[1:]:
            digests = ",".join(f"{bank}={digest(bank, measured)}" for bank, _, _ in HCRTM_BANKS)
            run("tpm2_pcrextend", "-Q", "-T", tcti, f"{pcr}:{digests}")
        values = {
            bank: {str(pcr): read_pcr(directory, tcti, bank, pcr) for pcr in (0, 7)}
            for bank, _, _ in HCRTM_BANKS
        }
    logs = HERE / "event-logs"
    (logs / "h-crtm.bin").write_bytes(hcrtm_log())
    known = json.loads((logs / "pcrs.json").read_text())
    document = json.dumps(known | {"h-crtm": values}, indent=1)
    (logs / "pcrs.json").write_text(document + "\n")


def hcrtm_log() -> bytes:
    """Write the crypto-agile log by hand."""
    banks = "".join(algorithm + size for _, algorithm, size in HCRTM_BANKS)
    count = f"{len(HCRTM_BANKS):02x}000000"
    header = f"{b'Spec ID Event03'.hex()}00{'00' * 4}00020002{count}{banks}00"
    log = "00000000" + "03000000" + "00" * 20 + little_endian(len(header) // 2) + header
    for pcr, event_type, data, measured in HCRTM_EVENTS:
        digests = "".join(a + digest(bank, measured) for bank, a, _ in HCRTM_BANKS)
        log += little_endian(pcr) + event_type + count + digests
        log += little_endian(len(data)) + data.hex()
    return bytes.fromhex(log)


def little_endian(number: int) -> str:
    """Write 4 bytes in hex."""
    return number.to_bytes(4, "little").hex()


def digest(bank: str, data: bytes) -> str:
    """Digest with openssl; return lower-case hex."""
    return run("openssl", "dgst", f"-{bank}", "-binary", feed=data).hex()


def read_pcr(directory: Path, tcti: str, bank: str, pcr: int) -> str:
    """Read one PCR; return lower-case hex."""
    value = directory / "pcr"
    run("tpm2_pcrread", "-Q", "-T", tcti, f"{bank}:{pcr}", "-o", value)
    return value.read_bytes().hex()


# Requests, by openssl and Go


def request_cases(directory: Path) -> list[dict[str, object]]:
    """Make requests of the profile with the encodings of other programs."""
    cases = [
        openssl_request(directory, f"openssl-{key[1].rpartition(':')[2]}-{mask}", key, mask)
        for key in (key for _, key, _ in ENDORSEMENT_KEYS[::2])
        for mask in ("utf8only", "default")
    ]
    go = run("go", "run", HERE / "kubelet_serving.go").decode()
    return [*cases, {"name": "go-kubelet-serving", "pem": go}]


def openssl_request(
    directory: Path, name: str, key: tuple[str, str], mask: str
) -> dict[str, object]:
    """Make a client request; `mask` decides between UTF8String and PrintableString."""
    config, private = directory / "request.cnf", directory / "request.key"
    config.write_text(
        f"[req]\nprompt=no\ndistinguished_name=dn\nreq_extensions=ext\nstring_mask={mask}\n"
        "[dn]\nO=system:nodes\nCN=system:node:worker-1.example.com\n"
        "[ext]\n1.3.6.1.4.1.11129.2.1.21=ASN1:UTF8String:test:///zone-a/i-1\n"
    )
    run("openssl", "genpkey", "-algorithm", key[0], "-pkeyopt", key[1], "-out", private)
    pem = run("openssl", "req", "-new", "-config", config, "-key", private)
    der = run("openssl", "req", "-outform", "DER", feed=pem)
    return {"name": name, "pem": pem.decode(), "der": der.hex()}


def main() -> None:
    """Write every file next to this one."""
    openssl, tools = version("openssl", "version"), version("tpm2_quote", "--version")
    directory = Path(tempfile.mkdtemp())
    try:
        write("kdf.json", [openssl], kdf_cases())
        write("digests.json", [openssl], digest_cases())
        write("credentials.json", [openssl, tools], credential_cases(directory))
        names, quotes = tpm_cases(directory)
        made_with = [version("swtpm", "--version"), tools, openssl]
        write("tpm_names.json", made_with, names)
        write("quotes.json", made_with, quotes)
        write_hcrtm_log(directory / "h-crtm")
        write("requests.json", [openssl, version("go", "version")], request_cases(directory))
    finally:
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
