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
if [ -d /run/systemd/system ]; then
  systemctl daemon-reload
fi
# An installation enables one timer, which a removal disables; an upgrade leaves it as the operator wants it. An operator
# may have masked the timer: that is no error of the installation.
timer=kubelet-authenticator-tpm-recover.timer
if [ -e /usr/lib/kubelet-authenticator-tpm/is-installed-now ]; then
  rm /usr/lib/kubelet-authenticator-tpm/is-installed-now
  if [ -d /run/systemd/system ]; then
    systemctl enable --quiet --now $timer || echo "node-attestation-authenticator: $timer is not enabled" >&2
  elif command -v systemctl >/dev/null; then
    systemctl enable --quiet $timer || echo "node-attestation-authenticator: $timer is not enabled" >&2
  fi
fi
