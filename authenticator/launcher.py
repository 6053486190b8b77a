"""The cached path: prints the credential in the cache, or starts the full program in its own place.

Installed as `kubelet-authenticator-tpm` under `python -I -S` (see setup.py), it imports only what
every CPython has built in, because start-up is all that it costs. It decides nothing but: is there
an intact credential file of ours, made for exactly this call (exec info and arguments, byte for
byte), between its receipt and its renewal point? Everything else is for `authenticator.cli`.

The format of the credential file is that of `authenticator.state.credential`; a test holds them together.
Times are unix seconds by the node's clock.
"""

import posix
import sys
import time

STATE_DIR = "/var/lib/kubelet-authenticator"
MAGIC = b"kubelet-authenticator-tpm credential 1"
CHECK_MODULUS = 2**61 - 1
"""A prime: each single flipped byte, and each exchange of two, changes the remainder."""

SIZE_LIMIT = 512 * 1024
REPEAT_CALL_SECONDS = 10
"""How long the same parent may ask again before it is taken as a sign of a 401."""

PRIVATE_REGULAR_FILE = 0o100000
TYPE_AND_OTHERS = 0o170077


def state_dir(arguments: list[str], exec_info: bytes) -> str:
    """Return the state folder that the call names; flags win over the exec extension.

    A wrong guess is harmless: what is found there was made for this very call, or is not used.
    """
    for position, argument in enumerate(arguments):
        if argument == "--state-dir":
            return arguments[position + 1]
        if argument.startswith("--state-dir="):
            return argument[len("--state-dir=") :]
    _, found, rest = exec_info.partition(b'"stateDir":')
    return rest.split(b'"', 2)[1].decode() if found else STATE_DIR


def open_state_directory(path: str) -> int:
    """Open the state folder; raise when there is a link in its place."""
    flags = posix.O_RDONLY | posix.O_DIRECTORY | posix.O_NOFOLLOW | posix.O_CLOEXEC
    return posix.open(path, flags)


def read_private(folder: int, name: str) -> bytes:
    """Return the file's bytes; raise when it is not a private, regular file of the caller's own."""
    flags = posix.O_RDONLY | posix.O_NOFOLLOW | posix.O_NONBLOCK | posix.O_CLOEXEC
    descriptor = posix.open(name, flags, dir_fd=folder)
    found = posix.fstat(descriptor)
    private = found.st_mode & TYPE_AND_OTHERS == PRIVATE_REGULAR_FILE
    if not private or found.st_uid != posix.geteuid() or found.st_size > SIZE_LIMIT:
        raise ValueError
    return posix.read(descriptor, found.st_size + 1)


def render(content: bytes, made_for: tuple[bytes, bytes], now: float) -> bytes:
    """Return the ExecCredential to print; raise unless it is whole, for this call, and fresh."""
    magic, check, signed = content.split(b"\n", 2)
    if magic != MAGIC or int(check) != int.from_bytes(signed, "big") % CHECK_MODULUS:
        raise ValueError
    arguments, exec_info, received, renew_at, expiration, api_version, rest = signed.split(b"\n", 6)
    if (arguments, exec_info) != made_for or not int(received) <= now < int(renew_at):
        raise ValueError
    pem = rest[rest.index(b"-----BEGIN CERTIFICATE-----") :].replace(b"\n", b"\\n")
    key = pem.index(b"-----BEGIN PRIVATE KEY-----")
    return b"".join(
        (
            b'{"kind":"ExecCredential","apiVersion":"',
            api_version,
            b'","status":{"expirationTimestamp":"',
            expiration,
            b'","clientCertificateData":"',
            pem[:key],
            b'","clientKeyData":"',
            pem[key:],
            b'"}}\n',
        )
    )


def is_repeat_call(folder: int, now: int) -> bool:
    """Tell whether the same parent was served this credential before: then it may have met a 401.

    The mark `served` holds the last parent and when it was served; a new credential removes it.
    """
    flags = posix.O_RDWR | posix.O_CREAT | posix.O_NOFOLLOW | posix.O_NONBLOCK | posix.O_CLOEXEC
    parent = posix.getppid()
    try:
        descriptor = posix.open("served", flags, 0o600, dir_fd=folder)
        known, _, since = posix.pread(descriptor, 64, 0).partition(b" ")
        if known == b"%d" % parent:
            return not 0 <= now - int(since) <= REPEAT_CALL_SECONDS
        posix.pwrite(descriptor, (b"%d %d" % (parent, now)).ljust(40), 0)
    except (OSError, ValueError):
        return False  # a full or read-only disk costs this sign, never the credential
    return False


def load_cached() -> bytes:
    """Return what to print from the cache; raise when the full program has to look at the call."""
    exec_info = posix.environ[b"KUBERNETES_EXEC_INFO"]
    arguments = sys.argv[1:]
    folder = open_state_directory(state_dir(arguments, exec_info))
    joined = "\0".join(arguments).encode("utf-8", "surrogateescape")
    made_for = (joined.hex().encode(), exec_info.hex().encode())
    now = time.time()
    printed = render(read_private(folder, "credential.pem"), made_for, now)
    if is_repeat_call(folder, int(now)):
        raise ValueError
    return printed


def exec_full_program() -> None:
    """Start the full program in this one's place; it is installed beside it, links followed.

    Its interpreter heeds the environment as this one does not, so what is meant for interpreters
    does not reach it.
    """
    import os  # noqa: PLC0415 - the cached path does without

    program = os.path.realpath(sys.argv[0]) + "-full"
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    try:
        os.execve(program, [program, *sys.argv[1:]], environment)  # noqa: S606 - in our own place
    except OSError as error:
        sys.exit(f"kubelet-authenticator-tpm: cannot start {program}: {error.strerror}; reinstall")


def main() -> None:
    """Print the cached credential and leave, or become the full program."""
    try:
        printed = load_cached()
    except (OSError, ValueError, LookupError):
        exec_full_program()
        return
    try:
        while printed:
            printed = printed[posix.write(1, printed) :]
    except OSError as error:
        sys.exit(f"kubelet-authenticator-tpm: cannot print the credential: {error.strerror}")
    posix._exit(0)  # noqa: SLF001 - nothing to clean up


if __name__ == "__main__":
    main()
