"""Commands that show the fleet: the signer, its Clusters, their nodes and the open requests.

A command of this room decides what counts as a problem of a node. It never changes anything.
"""
