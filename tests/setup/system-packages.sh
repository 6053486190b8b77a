#!/usr/bin/env bash
# Installs the Debian packages that building, running and testing need. Does nothing when all are installed.
#
# Usage: system-packages.sh PYTHON [image|packages|rehearsal|site]
#
# With "image", also what builds the container image of the signer; with "packages", what checks the node packages; with
# "rehearsal", what builds and installs a release; with "site", the browser that checks the documentation site.
#
# PYTHON is the interpreter of the virtual environment. Debian's python3-dev has headers for Debian's python3 only. So
# for another interpreter the script installs no headers, and only checks that they are there.
set -euo pipefail

python=${1:?usage: system-packages.sh PYTHON [image|packages|rehearsal|site]}
purpose=${2:-}

# The purpose of each package.
declare -A reason=(
  [gcc]="compiles the binding to the TPM library (tpm2-pytss is released as source)"
  [libc6-dev]="C headers for that compiler"
  [pkg-config]="finds the TPM library for that compiler"
  [libtss2-dev]="the TPM library itself and its headers"
  [swtpm]="the software TPM that tests run against"
  [swtpm-tools]="creates software TPMs with endorsement key certificates"
  [tpm2-tools]="an independent TPM client that tests compare with"
  [openssl]="an independent X.509 tool that tests compare with"
  [iproute2]="network namespaces and addresses for tests with a kubelet"
  [strace]="kills programs at a chosen step in tests"
  [faketime]="shifts the clock of a program in tests"
  [time]="measures the memory of a program for the bench"
  [containerd]="the container runtime for tests with a kubelet"
  [mandoc]="checks the man pages"
  [systemd]="systemd-analyze checks the units of the node packages"
  [debootstrap]="makes the Debian systems that boot under systemd in tests"
  [util-linux]="unshare and nsenter: namespaces of tests"
)

if [ "$purpose" = image ]; then
  reason[buildah]="builds a container image without a daemon"
elif [ "$purpose" = packages ]; then
  reason[lintian]="checks the deb for nodes"
  reason[qemu-user-static]="runs the programs of the packages for arm64"
elif [ "$purpose" = rehearsal ]; then
  reason[apt-utils]="writes the indexes of the repository for apt"
  reason[buildah]="builds a container image without a daemon"
  reason[createrepo-c]="writes the indexes of the repository for dnf"
  reason[gnupg]="signs the repositories"
  reason[rpm]="signs the rpms"
  reason[qemu-user-static]="runs the programs for arm64"
  reason[pipx]="installs the commands for operators as users do"
  reason[skopeo]="copies the image to and from the registry"
  reason[jq]="reads the index of the image, as the release workflow does"
  reason[curl]="downloads the files of the release, as users do"
elif [ "$purpose" = site ]; then
  reason[chromium]="opens the pages of the documentation site"
fi

# Debian's interpreter has neither venv nor headers; both are Debian packages too.
executable=$("$python" -c 'import os, sys; print(os.path.realpath(sys.executable))' 2>/dev/null || true)
case $executable in
  "" | /usr/bin/*)
    reason[python3]="the interpreter"
    reason[python3-venv]="creates the virtual environment"
    reason[python3-dev]="Python headers for the binding to the TPM library"
    ;;
  *)
    "$python" - <<'PYTHON' || exit 1
import pathlib, sys, sysconfig
header = pathlib.Path(sysconfig.get_path("include"), "Python.h")
if not header.is_file():
    sys.exit(f"{sys.executable} has no headers ({header}): install them, or use Debian's Python with make PYTHON=/usr/bin/python3")
try:
    import ensurepip, venv
except ImportError as missing:
    sys.exit(f"{sys.executable} cannot create virtual environments: {missing}")
PYTHON
    ;;
esac

missing=()
for package in "${!reason[@]}"; do
  status=$(dpkg-query --show --showformat='${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$status" = installed ] || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0
mapfile -t missing < <(printf '%s\n' "${missing[@]}" | sort)

echo "These Debian packages are missing and will be installed with apt-get:"
for package in "${missing[@]}"; do
  printf '  %-14s %s\n' "$package" "${reason[$package]}"
done

as_root=()
if ! command -v apt-get >/dev/null; then
  echo "There is no apt-get: install the content of these packages with your system's tools, then run this again." >&2
  exit 1
elif [ "$(id -u)" -ne 0 ]; then
  as_root=(sudo)
  # Without a terminal (CI) sudo must fail at once and not wait for a password.
  [ -t 0 ] || as_root+=(--non-interactive)
  if ! command -v sudo >/dev/null || ! "${as_root[@]}" true; then
    echo "Must be root, and sudo does not work. As root run: apt-get install --no-install-recommends ${missing[*]}" >&2
    exit 1
  fi
fi

# Tests start all services themselves. policy-rc.d keeps Debian from starting the installed ones; an existing
# policy-rc.d stays.
"${as_root[@]}" sh -eu -c '
  policy=/usr/sbin/policy-rc.d
  if [ ! -e "$policy" ]; then
    trap "rm -f $policy" EXIT
    printf "#!/bin/sh\nexit 101\n" >"$policy"
    chmod 755 "$policy"
  fi
  export DEBIAN_FRONTEND=noninteractive
  apt-get update --quiet
  apt-get install --quiet --yes --no-install-recommends "$@"
' sh "${missing[@]}"
