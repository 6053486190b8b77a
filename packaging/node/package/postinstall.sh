#!/bin/sh
# Compiles the modules for the Python of this system. After an upgrade of Python the program works without bytecode, and
# the kubelet's calls write it again. A Python that does not fit is no error of the installation: dpkg would leave the
# package half-configured, while the launcher may still serve the cached certificate.
set -e
lib=/usr/lib/kubelet-authenticator-tpm/lib
# The C module that exists once for each supported Python. "unchecked-hash": image builders change the times of files,
# and bytecode that is checked against them would be ignored.
if ! /usr/bin/python3 -ISB -c "import sys; sys.path.insert(0, '$lib'); import _cffi_backend" 2>/dev/null; then
  echo "node-attestation-authenticator: this node gets no certificates:" \
    "/usr/bin/python3 does not run, or this version of the package does not support it" >&2
elif ! /usr/bin/python3 -IS -m compileall -q -f --invalidation-mode unchecked-hash $lib; then
  echo "node-attestation-authenticator: the modules cannot be compiled; the program works, but starts more slowly" >&2
fi
# A power cut would leave truncated bytecode, of which the package manager knows nothing.
sync --file-system $lib
if [ -d /run/systemd/system ]; then
  systemctl daemon-reload
fi
