#!/usr/bin/env bash
# Brings the Debian packages that building, running and testing need; does nothing when all are there.
#
# Usage: system-packages.sh PYTHON
#
# PYTHON is the interpreter the virtual environment is made with. Its headers must be its own: Debian's python3-dev
# fits Debian's python3 and no other, so for another interpreter nothing is installed and only looked at.
set -euo pipefail

python=${1:?usage: system-packages.sh PYTHON}

# What each one is for, so that nobody has to trust a bare list.
declare -A reason=(
  [gcc]="compiles the binding to the TPM library (tpm2-pytss comes as source)"
  [libc6-dev]="C headers for that compiler"
  [pkg-config]="finds the TPM library for that compiler"
  [libtss2-dev]="the TPM library itself and its headers"
  [swtpm]="the software TPM that tests run against"
  [swtpm-tools]="makes software TPMs with endorsement key certificates"
  [tpm2-tools]="an independent TPM client that tests compare with"
  [openssl]="an independent X.509 tool that tests compare with"
  [iproute2]="network namespaces and addresses for tests with a kubelet"
  [strace]="kills programs at a chosen step in tests"
  [faketime]="shifts the clock of a program in tests"
  [time]="tells a program's memory to the bench, from a small parent"
  [containerd]="the container runtime for tests with a kubelet"
  [mandoc]="checks the man pages"
  [systemd]="systemd-analyze: checks the units of the node packages; nothing of it is started"
  [util-linux]="unshare: fast tests run without network"
)

# Debian's own interpreter ships without venv and headers; those have to come from Debian too.
executable=$("$python" -c 'import os, sys; print(os.path.realpath(sys.executable))' 2>/dev/null || true)
case $executable in
  "" | /usr/bin/*)
    reason[python3]="the interpreter"
    reason[python3-venv]="makes the virtual environment"
    reason[python3-dev]="Python headers for the binding to the TPM library"
    ;;
  *)
    "$python" - <<'PYTHON' || exit 1
import pathlib, sys, sysconfig
header = pathlib.Path(sysconfig.get_path("include"), "Python.h")
if not header.is_file():
    sys.exit(f"{sys.executable} has no headers ({header}): install its own, or choose Debian's with make PYTHON=/usr/bin/python3")
try:
    import ensurepip, venv
except ImportError as missing:
    sys.exit(f"{sys.executable} cannot make virtual environments: {missing}")
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
  echo "No apt-get here: install what these packages hold by your system's own means, then run this again." >&2
  exit 1
elif [ "$(id -u)" -ne 0 ]; then
  as_root=(sudo)
  # CI has no terminal to type a password on: -n fails at once instead of waiting for one.
  [ -t 0 ] || as_root+=(--non-interactive)
  if ! command -v sudo >/dev/null || ! "${as_root[@]}" true; then
    echo "Not root, and sudo does not help. As root: apt-get install --no-install-recommends ${missing[*]}" >&2
    exit 1
  fi
fi

# Tests start what they need themselves, so no installed service may start: policy-rc.d is Debian's switch for that.
# One that is already there is the machine's own decision and stays.
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
