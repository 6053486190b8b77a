"""The entry point of `node-attestation-signer`; only this module reads argv and environment."""

import argparse
import ctypes
import gc
import os
import resource
import socket
import sys
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Final

from signer.controller.controller import Controller
from signer.explain.command import explain
from signer.explain.manifests import FilesInvalid
from signer.explain.report import EXIT_UNDECIDED
from signer.logs import start_log
from signer.settings.arguments import PROGRAM, parse_arguments
from signer.settings.config import (
    DEFAULT_INFRASTRUCTURE_GROUP,
    ConfigError,
    Flags,
    in_cluster_endpoint,
    load,
)
from signer.signals import stop_on_signals
from signer.stacks import enlarge_stacks

_EXIT_FAILED: Final = 1
_EXIT_MISUSED: Final = 2
_SHUTDOWN_SECONDS: Final = 40
"""Less than the chart's `terminationGracePeriodSeconds`, more than the steps of a shutdown need."""
_GARBAGE_THRESHOLDS: Final = (10_000, 20, 20)
"""New objects until a search of the youngest, and how many searches until one of older objects."""
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8
"""Parameters of mallopt(3), from malloc.h of glibc."""
_LARGE_BLOCK: Final = 16 << 10
"""Bytes: those of one read from a server, and less than the buffer of a TLS handshake (21 KiB)."""


def main() -> int:
    """Run one command and return the exit status."""
    enlarge_stacks()
    arguments = parse_arguments(sys.argv[1:])
    match arguments.command:
        case "explain":
            return _explain(arguments)
        case _:
            return _run(arguments)


def _run(arguments: argparse.Namespace) -> int:
    """Load the configuration, then sign until a signal ends the program."""
    log = start_log(arguments.log_level.upper())
    try:
        config = load(_flags(arguments, os.environ))
    except ConfigError as error:
        return _fail(_EXIT_MISUSED, error.problems)
    _allow_open_files()
    _return_freed_memory()
    _search_garbage_less_often()
    stop = stop_on_signals(_SHUTDOWN_SECONDS)
    try:
        agent = f"{PROGRAM}/{version('node-attestation')}"
        controller = Controller(config, log, agent=agent, host_name=socket.gethostname())
    except OSError as error:
        return _fail(_EXIT_FAILED, [f"--metrics-address: {error.strerror}"])
    controller.run(stop)
    return 0


def _allow_open_files() -> None:
    """Raise the limit of open files to the hard limit: each workload cluster has connections.

    Go programs do the same when they start. The soft limit is often 1024, for programs that call
    `select` (systemd, "Process Resource Limits").
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _return_freed_memory() -> None:
    """Let glibc return large blocks to the system at once, and keep few arenas.

    Else a block that was freed below one in use stays with the process: each thread has an arena,
    and a large block that is freed makes glibc take all smaller ones from there. Pages of lists and
    TLS handshakes are such blocks. Another C library has no such function, and then nothing is set.
    Figures: docs/performance.md.
    """
    libc = ctypes.CDLL(None)
    with suppress(AttributeError):
        libc.mallopt(_M_ARENA_MAX, 2)
        libc.mallopt(_M_MMAP_THRESHOLD, _LARGE_BLOCK)


def _search_garbage_less_often() -> None:
    """Let Python search for cyclic garbage after more new objects than by default (700, 10, 10).

    The caches are large and have no cycles, so nearly every search finds nothing. Reference counts
    free what requests leave. Figures: docs/performance.md.
    """
    gc.freeze()
    gc.set_threshold(*_GARBAGE_THRESHOLDS)


def _explain(arguments: argparse.Namespace) -> int:
    """Print how the signer would judge the requests; the exit status is the verdict."""
    try:
        report, status = explain(
            requests=arguments.file,
            objects=arguments.objects,
            challenge_key_secret=arguments.challenge_key_secret,
            cluster=arguments.cluster,
            now=arguments.now or datetime.now(UTC),
            json=arguments.output == "json",
        )
    except FilesInvalid as error:
        return _fail(_EXIT_MISUSED, error.problems)
    except Exception:  # noqa: BLE001 - Python would exit with 1, which means denied
        traceback.print_exc()
        return EXIT_UNDECIDED
    sys.stdout.write(report)
    return status


def _fail(status: int, problems: Sequence[str]) -> int:
    for problem in problems:
        sys.stderr.write(f"{PROGRAM}: {problem}\n")
    return status


def _flags(arguments: argparse.Namespace, environment: Mapping[str, str]) -> Flags:
    return Flags(
        create_default_policy=arguments.create_default_policy,
        kubeconfig=arguments.kubeconfig,
        in_cluster_endpoint=in_cluster_endpoint(environment),
        own_namespace=arguments.own_namespace or environment.get("POD_NAMESPACE"),
        watched_namespace=arguments.namespace,
        infrastructure_groups=tuple(
            arguments.infrastructure_groups or (DEFAULT_INFRASTRUCTURE_GROUP,)
        ),
        metrics_address=arguments.metrics_address,
        metrics_secure=arguments.metrics_secure,
    )
