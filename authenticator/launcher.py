"""The fast path: print the cached credential, or exec the full program.

Installed as `kubelet-authenticator-tpm`, in the node packages under `python -I -S`. It imports only
modules that are built into every CPython, because start-up is all of its cost. It prints the
credential file if that is intact and private, was obtained for exactly this call (exec info and
arguments, byte for byte), and has neither expired nor been received in the future. After the
renewal point it then starts a background run of the full program, which takes the lock of the
exchange or ends. `authenticator.cli` handles every other call, also those for which it serves the
same credential with a warning: so it serves a credential whose renewal is overdue.

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

STALE_EXPIRATION_SECONDS = 120
"""How long client-go may use a credential whose renewal is due before it asks again."""

OVERDUE_SECONDS = 300
"""A renewal that is due for longer is reported: a run of one minute or two has failed by then."""

LOG_LIMIT = 128 * 1024
"""Bytes of `background.log`: the full program renames a larger one."""

STDERR = 2
NOTES_LIMIT = 1024
"""Bytes of the file `served`: beyond it, notes of ended processes are dropped."""

NOT_INHERITED = ("PYTHON", "OPENSSL_", "SSL_CERT_")
"""Beginnings of variables that the full program does not get."""

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
    return posix.read(descriptor, private_size(descriptor, SIZE_LIMIT) + 1)


def private_size(descriptor: int, limit: int) -> int:
    """Return the size of an open file; raise unless it is private, this user's, and not larger."""
    status = posix.fstat(descriptor)
    private = status.st_mode & TYPE_AND_OTHERS == PRIVATE_REGULAR_FILE
    if not private or status.st_uid != posix.geteuid() or status.st_size > limit:
        raise ValueError
    return status.st_size


def render(content: bytes, call: tuple[bytes, bytes], now: float) -> tuple[bytes, float]:
    """Return the ExecCredential to print, and since how many seconds its renewal is due.

    Raises unless it is intact, for this call, and valid. `call` is the arguments and the exec info,
    both in hex.
    """
    magic, check, signed = content.split(b"\n", 2)
    if magic != MAGIC or int(check) != int.from_bytes(signed, "big") % CHECK_MODULUS:
        raise ValueError
    arguments, exec_info, received, renew_at, expiration, api_version, details = signed.split(
        b"\n", 6
    )
    if (arguments, exec_info) != call or now < int(received):
        raise ValueError
    late = now - int(renew_at)
    if late >= 0:
        expiration = stale_expiration(details, now)
    pem = details[details.index(b"-----BEGIN CERTIFICATE-----") :].replace(b"\n", b"\\n")
    key = pem.index(b"-----BEGIN PRIVATE KEY-----")
    printed = b"".join(
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
    return printed, late


def stale_expiration(details: bytes, now: float) -> bytes:
    """Return the `expirationTimestamp` of a credential whose renewal is due.

    Raises when the certificate ends within a second. `details` begins with a line of JSON.
    """
    not_after = int(details.partition(b'"notAfter": ')[2].partition(b",")[0])
    if now + 1 >= not_after:
        raise ValueError
    expires = min(-int(-now // 1) + STALE_EXPIRATION_SECONDS, not_after)
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(expires)).encode()


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


def load_cached() -> tuple[bytes, int | None]:
    """Return what to print from the cache, and the log for a background run if one is due.

    Raises when the full program has to handle the call.
    """
    exec_info = posix.environ[b"KUBERNETES_EXEC_INFO"]
    arguments = sys.argv[1:]
    directory = open_state_directory(state_dir(arguments, exec_info))
    joined = "\0".join(arguments).encode("utf-8", "surrogateescape")
    call = (joined.hex().encode(), exec_info.hex().encode())
    now = time.time()
    printed, late = render(read_private(directory, "credential.pem"), call, now)
    if 0 <= late <= OVERDUE_SECONDS:
        return printed, open_background_log(directory)
    if late > 0 or is_repeat_call(directory, int(now)):
        raise ValueError
    return printed, None


def open_background_log(directory: int) -> int:
    """Open the log of background runs, and return its descriptor.

    Raises when the log has to be renamed or others may read it.
    """
    flags = posix.O_WRONLY | posix.O_CREAT | posix.O_APPEND
    flags |= posix.O_NOFOLLOW | posix.O_NONBLOCK | posix.O_CLOEXEC
    log = posix.open("background.log", flags, 0o600, dir_fd=directory)
    private_size(log, LOG_LIMIT)
    return log


def start_background_run(log: int) -> None:
    """Start a renewal, detached as `authenticator.background` describes it. Raises `OSError`.

    It starts as this launcher, which becomes the full program: no credential was obtained for its
    arguments.
    """
    command = [sys.argv[0], "background", "renewal-due", *sys.argv[1:]]
    inherited = (int(name) for name in posix.listdir("/proc/self/fd"))
    actions = (
        (posix.POSIX_SPAWN_OPEN, 0, "/dev/null", posix.O_RDONLY, 0),
        (posix.POSIX_SPAWN_OPEN, 1, "/dev/null", posix.O_WRONLY, 0),
        (posix.POSIX_SPAWN_DUP2, log, STDERR),
        *((posix.POSIX_SPAWN_CLOSE, number) for number in inherited if number > STDERR),
    )
    posix.posix_spawn(sys.argv[0], command, posix.environ, file_actions=actions, setsid=True)


def warn(message: str) -> None:
    """Write a line to stderr, if that is possible."""
    try:
        posix.write(STDERR, f"kubelet-authenticator-tpm: {message}\n".encode())
    except OSError:
        return  # client-go would discard a credential whose plugin fails


def exec_full_program() -> None:
    """Replace this process by the full program, which is installed next to this one's real path.

    Variables that its interpreter or its two builds of OpenSSL read are not passed on. The OpenSSL
    of `cryptography` has no FIPS provider: a host's `OPENSSL_CONF` that asks for one stops it.
    """
    import os  # noqa: PLC0415 - the fast path does not need it

    program = os.path.realpath(sys.argv[0]) + "-full"
    environment = {k: v for k, v in os.environ.items() if not k.startswith(NOT_INHERITED)}
    try:
        os.execve(program, [program, *sys.argv[1:]], environment)  # noqa: S606 - no shell is wanted
    except OSError as error:
        sys.exit(f"kubelet-authenticator-tpm: cannot start {program}: {error.strerror}; reinstall")


def main() -> None:
    """Print the cached credential and exit, or become the full program."""
    try:
        printed, log = load_cached()
    except (OSError, ValueError, LookupError):
        exec_full_program()
        return
    try:
        while printed:
            printed = printed[posix.write(1, printed) :]
    except OSError as error:
        sys.exit(f"kubelet-authenticator-tpm: cannot print the credential: {error.strerror}")
    try:
        if log is not None:
            start_background_run(log)
    except OSError as error:
        warn(f"no background run can be started: {error.strerror}")
    posix._exit(0)  # noqa: SLF001 - nothing to clean up


if __name__ == "__main__":
    main()
