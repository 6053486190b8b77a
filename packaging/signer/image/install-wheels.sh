#!/bin/sh
# Installs the Python packages of a lock into a root file system, as wheels of its architecture.
#
# Usage: install-wheels.sh DIRECTORY ARCHITECTURE LOCK
set -eu

root=${1:?usage: install-wheels.sh DIRECTORY ARCHITECTURE LOCK}
architecture=${2:?usage: install-wheels.sh DIRECTORY ARCHITECTURE LOCK}
lock=${3:?usage: install-wheels.sh DIRECTORY ARCHITECTURE LOCK}

case $architecture in
  amd64) machine=x86_64 ;;
  arm64) machine=aarch64 ;;
  *) echo "install-wheels: the architecture must be amd64 or arm64, not $architecture" >&2; exit 1 ;;
esac
modules=$root/usr/local/lib/$(basename "$root"/usr/lib/python3.*)/dist-packages
mkdir -p "$modules"
/build/bin/pip install --quiet --no-deps --require-hashes --only-binary=:all: --no-compile --target "$modules" \
  --platform "manylinux_2_34_$machine" --platform "manylinux_2_28_$machine" --platform "manylinux_2_17_$machine" \
  --platform "manylinux2014_$machine" --requirement "$lock"
rm -rf "$modules/bin"
