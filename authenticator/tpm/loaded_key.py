"""What esapi.py returns to attestation.py: a loaded key, or that the TPM cannot make one."""

from dataclasses import dataclass


class TemplateUnsupported(Exception):
    """The TPM does not support the algorithm, size or curve of a template; the next is tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedKey:
    """A key that can be used until it is flushed: its handle and TPM2B_PUBLIC.

    `qualified_name` shows the hierarchy of a persistent key; it is empty for a key made here.
    """

    handle: int
    public: bytes
    qualified_name: bytes
