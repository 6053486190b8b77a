#!/usr/bin/env bash
# Builds the commands for operators as one file into dist/, in an archive, with the same bytes for the same source, and
# a manifest with which krew installs it.
#
# Usage: build-plugin.sh PYTHON RELEASE_URL
#
# RELEASE_URL has the files of dist/ once they are published. PYTHON has shiv. dist/ has the wheel of this project. The file
# has all libraries as their wheels have them, for each supported Python on x86-64 Linux with glibc 2.28 or newer. It
# unpacks them into ~/.shiv when it first runs.
set -euo pipefail

python=${1:?usage: build-plugin.sh PYTHON RELEASE_URL}
release_url=${2:?usage: build-plugin.sh PYTHON RELEASE_URL}
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
umask 022
work=build/plugin
rm -rf "$work" && mkdir -p "$work/wheels" "$work/site" "$work/out"

for version in 3.11 3.12 3.13 3.14; do
  echo "plugin: libraries for Python $version"
  "$python" -m pip download --quiet --require-hashes --no-deps --only-binary :all: --python-version "$version" \
    --platform manylinux_2_28_x86_64 --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 \
    --requirement requirements/operator.txt --dest "$work/wheels"
done
# Files of an extension have the version of Python in their names, so wheels for several versions fit into one directory.
for wheel in "$work"/wheels/*.whl dist/node_attestation-*.whl; do
  "$python" -m zipfile --extract "$wheel" "$work/site"
done
# shiv keeps the mode of this file, which a checkout has from the umask.
install --mode=644 packaging/operator/require-python.py "$work"

"$python" -m shiv --reproducible --site-packages "$work/site" --entry-point signer.operator_cli.cli:main \
  --preamble "$work/require-python.py" --python '/usr/bin/env python3' \
  --output-file "$work/out/kubectl-attestation"
install --mode=644 LICENSE "$work/out"
version=$("$python" -c 'import tomllib; print(tomllib.load(open("pyproject.toml", "rb"))["project"]["version"])')
archive=kubectl-attestation-$version-linux-amd64.tar.gz
tar --create --directory "$work/out" --format=ustar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 \
  --numeric-owner . | gzip --no-name --best >"dist/$archive"

semantic_version=$(PYTHONPATH=packaging "$python" -m builders.version)
cat >dist/krew.yaml <<MANIFEST
apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: attestation
spec:
  version: v$semantic_version
  shortDescription: Show and manage TPM attestation of kubelets
  description: |
    Registers and bans the TPMs of the machines of Cluster API, and shows which
    nodes have attested, which have not, and why.
  caveats: |
    Needs Python 3.11 to 3.14.
  platforms:
  - selector:
      matchLabels: {os: linux, arch: amd64}
    uri: $release_url/$archive
    sha256: $(sha256sum "dist/$archive" | cut --delimiter=' ' --fields=1)
    bin: kubectl-attestation
MANIFEST
du --apparent-size --summarize --human-readable "dist/$archive"
