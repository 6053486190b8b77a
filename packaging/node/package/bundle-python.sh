#!/usr/bin/env bash
# Puts a CPython into a tree that tree.sh has made, for systems without a fitting Python. pack.sh packs the result.
#
# Usage: bundle-python.sh TREE PYTHON
#
# PYTHON is the directory of a relocatable CPython 3.11 to 3.14, with bin/python3 and lib/python3.*. build-python.sh
# makes it.
set -euo pipefail
umask 022

usage="usage: bundle-python.sh TREE PYTHON"
tree=${1:?$usage}
python=${2:?$usage}
installed=/usr/lib/kubelet-authenticator-tpm
program=$tree$installed
interpreter=$installed/python/bin/python3

"$python/bin/python3" -IS -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' || {
  echo "bundle-python.sh: $python must have a CPython 3.11 to 3.14" >&2
  exit 1
}
mkdir -p "$program/python/bin"
cp --dereference "$python/bin/python3" "$program/python/bin/python3"
cp --recursive "$python/lib" "$program/python/lib"
(
  cd "$program/python/lib"
  # Tests, graphics, installers, and what only builds use.
  rm -rf pkgconfig python3.*/{test,idlelib,tkinter,turtledemo,ensurepip,lib2to3,pydoc_data,site-packages,dist-packages} \
    python3.*/config-* ./*.a ./{tcl,tk,itcl,thread,libtcl,libtk}[0-9]*
  find . -name __pycache__ -prune -exec rm -rf {} +
)
sed --in-place "1s|^#!/usr/bin/python3 |#!$interpreter |" "$program"/bin/*
sed --in-place --expression "s|/usr/bin/python3 |$interpreter |" \
  --expression "s|unchecked-hash \$lib|& $installed/python/lib|" "$tree/scripts/postinstall.sh"
# The newest symbol that a file in the package needs of glibc.
glibc=$(find "$program" -type f \( -name '*.so' -o -path '*/python/bin/python3' \) -exec objdump --dynamic-syms {} + |
  grep --only-matching 'GLIBC_[0-9.]*' | sort --version-sort --unique | tail --lines=1)
sed --in-place --expression '/^      - python3 /d' --expression "s/libc6 (>= .*)/libc6 (>= ${glibc#GLIBC_})/" \
  --expression "s/(GLIBC_.*)(64bit)/($glibc)(64bit)/" "$tree/nfpm.yaml"
