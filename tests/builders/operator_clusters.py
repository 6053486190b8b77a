"""A Cluster as an operator's command has read it."""

import json

from signer.inventory.cluster_api.cluster import read_cluster

CLUSTER = read_cluster(
    json.dumps({"metadata": {"name": "c1", "namespace": "team-a", "uid": "u"}, "spec": {}}).encode()
)
