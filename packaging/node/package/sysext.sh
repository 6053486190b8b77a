#!/usr/bin/env bash
# Makes a system extension from a tree that bundle-python.sh has completed, for systems with a read-only /usr.
#
# Usage: sysext.sh TREE DIRECTORY
#
# DIRECTORY becomes the extension. systemd-sysext merges its usr/ into the system's /usr, with an overlay. The last part
# of DIRECTORY is the name of the extension.
set -euo pipefail
umask 022

usage="usage: sysext.sh TREE DIRECTORY"
tree=${1:?$usage}
directory=${2:?$usage}
name=$(basename "$directory")
program=usr/lib/kubelet-authenticator-tpm
case $(uname -m) in
  x86_64) architecture=x86-64 ;;
  aarch64) architecture=arm64 ;;
  *) echo "sysext.sh: no extension for $(uname -m)" >&2 && exit 1 ;;
esac

rm -rf "${directory:?}"
mkdir -p "$directory/usr/bin" "$directory/usr/lib/extension-release.d"
cp --archive "$tree/usr/." "$directory/usr"
ln --symbolic ../lib/kubelet-authenticator-tpm/bin/kubelet-authenticator-tpm "$directory/usr/bin"
# The merged /usr is read-only, so the bytecode must be in the extension.
"$directory/$program/python/bin/python3" -IS -m compileall -q -f --invalidation-mode unchecked-hash -s "$directory" \
  "$directory/$program/lib" "$directory/$program/python/lib"
# It fits every distribution, because the tree has its own Python.
cat >"$directory/usr/lib/extension-release.d/extension-release.$name" <<RELEASE
ID=_any
ARCHITECTURE=$architecture
EXTENSION_RELOAD_MANAGER=1
RELEASE
