"""Builds the packages of the signer: chart, manifests, clusterctl components, image; and tests."""
