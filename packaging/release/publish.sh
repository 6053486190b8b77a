#!/usr/bin/env bash
# Publishes the image and the chart of a release in a registry, signs them, and attaches SBOMs.
#
# Usage: publish.sh DIST REGISTRY
#
# DIST has the files that `make dist` wrote. Needs skopeo, helm, jq, and cosign 3, and a login of each to REGISTRY. cosign
# gets the options in COSIGN_OPTIONS; without a key among them it signs with the identity of the workflow that runs it.
set -euo pipefail

dist=${1:?usage: publish.sh DIST REGISTRY}
registry=${2:?usage: publish.sh DIST REGISTRY}
read -ra options <<<"--yes ${COSIGN_OPTIONS:-}"
name=node-attestation-signer
image=$registry/$name
archive=$(echo "$dist/$name"-*.oci.tar)
version=${archive#"$dist/$name-"}
version=${version%.oci.tar}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

echo "publish: $image:$version"
skopeo copy --quiet --all --preserve-digests "oci-archive:$archive" "docker://$image:$version"
skopeo inspect --raw "docker://$image:$version" >"$work/index.json"
digest=sha256:$(sha256sum <"$work/index.json" | cut -d ' ' -f 1)
cosign sign "${options[@]}" --recursive "$image@$digest"
jq --raw-output '.manifests[] | .platform.architecture + " " + .digest' "$work/index.json" |
  while read -r architecture digest; do
    cosign attest "${options[@]}" --type cyclonedx --predicate "$dist/$name-$version-linux-$architecture.cdx.json" "$image@$digest"
  done

echo "publish: $registry/charts/$name:$version"
helm push "$dist/$name-$version.tgz" "oci://$registry/charts" >"$work/pushed" 2>&1 || { cat "$work/pushed" >&2; exit 1; }
digest=$(sed --quiet 's/^Digest: //p' "$work/pushed")
cosign sign "${options[@]}" "$registry/charts/$name@$digest"
