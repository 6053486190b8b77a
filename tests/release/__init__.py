"""Describes the artifacts of a release: checksums, SBOM, provenance, release notes.

`make dist` runs it over the files that it has built. It reads files and git, and needs no network.
It imports neither program. Its unit tests are in tests/unit/release; test_results.py reads dist/.
"""
