#!/usr/bin/env bash
# Builds the tree of files that the node packages install, for every supported Python at once, or for those that PYTHONS
# names.
#
# Usage: tree.sh DIRECTORY
#
# `make setup` has to be done before. DIRECTORY becomes a root directory with the installed files, and has what pack.sh
# needs. Its files have the same bytes in every run on the same system. Build on the oldest supported system: the binding
# runs with its versions of glibc and tpm2-tss, and with newer ones. MACHINE names the machine (uname -m) of the nodes if
# it is another one than this; Debian's cross compiler and its libraries must be installed.
set -euo pipefail
umask 022

directory=$(realpath --canonicalize-missing "${1:?usage: tree.sh DIRECTORY}")
cd "$(dirname "$0")/../../.."
pip=.venv/bin/pip
lock=requirements/node.txt
pythons=(3.11 3.12 3.13 3.14)
[ -z "${PYTHONS:-}" ] || read -ra pythons <<<"$PYTHONS"
machine=${MACHINE:-$(uname -m)}
triplet=$machine-linux-gnu
# Wheels that need no newer glibc than this system has; pip takes those of the first platform that has any.
glibc=$(getconf GNU_LIBC_VERSION)
platforms=()
for minor in 34 28 17; do
  [ $minor -gt "${glibc#*.}" ] || platforms+=(--platform "manylinux_2_${minor}_$machine")
done
platforms+=(--platform "manylinux2014_$machine")

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir "$scratch"/{wheels,source,pkgconfig}

# Prints the entries of the lock for the named packages.
locked() {
  awk -v names=" $* " '/^[a-z]/ { split($1, part, "=="); wanted = index(names, " " part[1] " ") } wanted && !/^ *#/' $lock
}

# Downloads wheels for this machine, for any Python that the options name.
fetch() {
  local requirements=$scratch/requirements.txt
  cat >"$requirements"
  $pip download --quiet --no-deps --require-hashes --only-binary :all: --dest "$scratch/wheels" \
    "${platforms[@]}" --requirement "$requirements" "$@"
}

# Wheels that run with every Python. tpm2-pytss also requires `packaging`, but does not import it.
locked cryptography pyyaml urllib3 | fetch --python-version "${pythons[0]}"
# One module of `cffi` differs between versions of Python. The others, and `pycparser`, are only needed by builds.
for python in "${pythons[@]}"; do
  locked cffi | fetch --python-version "$python"
done

# The binding to the TPM library. FAPI is four fifths of it, and the program does not use it. The build of the binding
# includes every library that pkg-config knows, so pkg-config gets to know only the needed ones.
for name in esys mu rc sys tctildr; do
  cp "/usr/lib/$triplet/pkgconfig/tss2-$name.pc" "$scratch/pkgconfig"
done
locked tpm2-pytss >"$scratch/requirements.txt"
# LDSHARED replaces the linker flags of the building Python, some of which add a RUNPATH.
PKG_CONFIG_LIBDIR=$scratch/pkgconfig CC=$triplet-gcc CFLAGS="-O2 -g0" \
  LDSHARED="$triplet-gcc -shared -Wl,-z,relro,-z,now,-s,--build-id=none" $pip wheel --quiet --no-build-isolation --no-cache-dir \
  --no-deps --require-hashes --wheel-dir "$scratch/wheels" --requirement "$scratch/requirements.txt"

# This project. A copy, because setuptools leaves files in the source.
cp -r authenticator common signer pyproject.toml README.md LICENSE "$scratch/source"
$pip wheel --quiet --no-deps --no-build-isolation --wheel-dir "$scratch/wheels" "$scratch/source"

program=$directory/usr/lib/kubelet-authenticator-tpm
rm -rf "${directory:?}"
mkdir -p "$program/bin" "$program/lib"
for wheel in "$scratch"/wheels/*.whl; do
  .venv/bin/python -m zipfile --extract "$wheel" "$program/lib"
done
(
  cd "$program/lib"
  # The signer, what only builds use, and C modules that have a Python twin.
  rm -rf signer cffi _yaml yaml/_yaml*.so
  find . \( -name '*.pyi' -o -name py.typed -o -name '*.c' -o -name '*.h' \) -delete
  # Of the metadata remain the version, the entry points and the licenses.
  find . -path '*.dist-info/*' -type f ! -name METADATA ! -name entry_points.txt ! -ipath '*licen[cs]e*' \
    ! -iname 'copying*' ! -iname 'notice*' -delete
  find . -depth -type d -empty -delete
  find . -name '*.so' -exec "$triplet-strip" --strip-unneeded {} +
)
node=packaging/node
install -m 755 $node/package/kubelet-authenticator-tpm $node/package/kubelet-authenticator-tpm-full "$program/bin"

units=$directory/usr/lib/systemd/system
share=$directory/usr/share
install -D -m 644 --target-directory "$units" $node/systemd/*.service $node/systemd/*.timer
install -D -m 644 --target-directory "$units/kubelet.service.d" $node/systemd/zz-20-*.conf
# The drop-in for attested serving certificates changes how each kubelet starts: an operator puts it into place.
install -D -m 644 --target-directory "$program" $node/kubelet.env $node/systemd/zz-30-*.conf
install -D -m 644 --target-directory "$share/man/man1" $node/man/kubelet-authenticator-tpm.1
gzip --best --no-name "$share/man/man1/kubelet-authenticator-tpm.1"
install -D -m 644 --target-directory "$share/bash-completion/completions" $node/completion/kubelet-authenticator-tpm
install -D -m 644 $node/kubelet.conf "$share/doc/node-attestation-authenticator/examples/kubelet.conf"
install -D -m 644 --target-directory "$share/doc/node-attestation-authenticator/examples" $node/kubelet.conf.d/*

install -D -m 644 --target-directory "$directory/debian" $node/package/copyright
install -m 644 LICENSE "$directory"
install -D -m 755 --target-directory "$directory/scripts" $node/package/{pre,post}{install,remove}.sh
install -m 644 $node/package/nfpm.yaml "$directory"
