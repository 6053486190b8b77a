"""The fast path: print the cached credential, or exec the full program.

Installed as `kubelet-authenticator-tpm` under `python -I -S` (see setup.py). It imports only
modules that are built into every CPython, because start-up is all of its cost. It prints the
credential file if that is intact and private, was obtained for exactly this call (exec info and
arguments, byte for byte), and is between its receipt and its renewal point. `authenticator.cli`
handles every other call, also those for which it serves the same credential with a warning.

`authenticator.state.credential` defines the format of the file; a test compares both. Times are
unix seconds by the node's clock.
"""

import posix
import sys
import time

STATE_DIR = "/var/lib/kubelet-authenticator"
MAGIC = b"kubelet-authenticator-tpm credential 1"
CHECK_MODULUS = 2**61 - 1
"""A prime: one changed byte, or two exchanged bytes, change the remainder."""

SIZE_LIMIT = 512 * 1024
REPEAT_CALL_SECONDS = 10
"""A process that is served again after more than this time may have got a 401."""

NOTES_LIMIT = 1024
"""Bytes of the file `served`: beyond it, notes of ended processes are dropped."""

PRIVATE_REGULAR_FILE = 0o100000
TYPE_AND_OTHERS = 0o170077


def state_dir(arguments: list[str], exec_info: bytes) -> str:
    """Return the state directory that the call names; flags take precedence.

    A wrong guess is harmless: a credential that was not obtained for this very call is not used.
    """
    for position, argument in enumerate(arguments):
        if argument == "--state-dir":
            return arguments[position + 1]
        if argument.startswith("--state-dir="):
            return argument[len("--state-dir=") :]
    _, separator, value = exec_info.partition(b'"stateDir":')
    return value.split(b'"', 2)[1].decode() if separator else STATE_DIR


def open_state_directory(path: str) -> int:
    """Open the state directory; raise when it is a link."""
    flags = posix.O_RDONLY | posix.O_DIRECTORY | posix.O_NOFOLLOW | posix.O_CLOEXEC
    return posix.open(path, flags)


def read_private(directory: int, name: str) -> bytes:
    """Return the file's bytes; raise unless it is a private, regular file of this user."""
    flags = posix.O_RDONLY | posix.O_NOFOLLOW | posix.O_NONBLOCK | posix.O_CLOEXEC
    descriptor = posix.open(name, flags, dir_fd=directory)
    status = posix.fstat(descriptor)
    private = status.st_mode & TYPE_AND_OTHERS == PRIVATE_REGULAR_FILE
    if not private or status.st_uid != posix.geteuid() or status.st_size > SIZE_LIMIT:
        raise ValueError
    return posix.read(descriptor, status.st_size + 1)


def render(content: bytes, call: tuple[bytes, bytes], now: float) -> bytes:
    """Return the ExecCredential to print; raise unless it is intact, for this call, and fresh.

    `call` is the arguments and the exec info, both in hex.
    """
    magic, check, signed = content.split(b"\n", 2)
    if magic != MAGIC or int(check) != int.from_bytes(signed, "big") % CHECK_MODULUS:
        raise ValueError
    arguments, exec_info, received, renew_at, expiration, api_version, details = signed.split(
        b"\n", 6
    )
    if (arguments, exec_info) != call or not int(received) <= now < int(renew_at):
        raise ValueError
    pem = details[details.index(b"-----BEGIN CERTIFICATE-----") :].replace(b"\n", b"\\n")
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


def is_repeat_call(directory: int, now: int) -> bool:
    """Return whether the parent was served this credential before: then it may have got a 401.

    The file `served` has one line per parent, its process ID and when it was served. Several
    processes are remembered, so that calls of kubectl do not hide those of the kubelet. A new
    credential removes the file.
    """
    flags = posix.O_RDWR | posix.O_CREAT | posix.O_APPEND
    flags |= posix.O_NOFOLLOW | posix.O_NONBLOCK | posix.O_CLOEXEC
    parent = posix.getppid()
    try:
        descriptor = posix.open("served", flags, 0o600, dir_fd=directory)
        notes = posix.pread(descriptor, NOTES_LIMIT, 0).splitlines()
        times = [note.split()[1] for note in notes if note.startswith(b"%d " % parent)]
        if times:
            return not 0 <= now - int(times[-1]) <= REPEAT_CALL_SECONDS
        if posix.fstat(descriptor).st_size >= NOTES_LIMIT:
            posix.ftruncate(descriptor, 0)
            running = [note + b"\n" for note in notes if is_of_running_process(note)]
            posix.write(descriptor, b"".join(running[:32]))
        posix.write(descriptor, b"%d %d\n" % (parent, now))
    except (OSError, ValueError, LookupError):
        return False  # a full or read-only disk costs this sign, never the credential
    return False


def is_of_running_process(note: bytes) -> bool:
    """Return whether the process of a line of `served` still runs."""
    pid, _, since = note.partition(b" ")
    if not (pid.isdigit() and since.isdigit()):
        return False
    try:
        posix.stat(b"/proc/" + pid)
    except OSError:
        return False
    return True


def load_cached() -> bytes:
    """Return what to print from the cache; raise when the full program has to handle the call."""
    exec_info = posix.environ[b"KUBERNETES_EXEC_INFO"]
    arguments = sys.argv[1:]
    directory = open_state_directory(state_dir(arguments, exec_info))
    joined = "\0".join(arguments).encode("utf-8", "surrogateescape")
    call = (joined.hex().encode(), exec_info.hex().encode())
    now = time.time()
    printed = render(read_private(directory, "credential.pem"), call, now)
    if is_repeat_call(directory, int(now)):
        raise ValueError
    return printed


def exec_full_program() -> None:
    """Replace this process by the full program, which is installed next to this one's real path.

    Its interpreter reads PYTHON* variables, unlike this one: they are not passed on.
    """
    import os  # noqa: PLC0415 - the fast path does not need it

    program = os.path.realpath(sys.argv[0]) + "-full"
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    try:
        os.execve(program, [program, *sys.argv[1:]], environment)  # noqa: S606 - no shell is wanted
    except OSError as error:
        sys.exit(f"kubelet-authenticator-tpm: cannot start {program}: {error.strerror}; reinstall")


def main() -> None:
    """Print the cached credential and exit, or become the full program."""
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
