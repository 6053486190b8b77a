#!/bin/sh
# Compiles the modules for the Python of this system. After an upgrade of Python the program works without bytecode, and
# the kubelet's calls write it again.
set -e
# "unchecked-hash": image builders change the times of files, and bytecode that is checked against them would be ignored.
/usr/bin/python3 -IS -m compileall -q -f --invalidation-mode unchecked-hash /usr/lib/kubelet-authenticator-tpm/lib ||
  echo "node-attestation-authenticator: the modules cannot be compiled; the program works, but starts more slowly" >&2
if [ -d /run/systemd/system ]; then
  systemctl daemon-reload
fi
