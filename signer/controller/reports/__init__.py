"""Reports to users of the management cluster: on Clusters, Machines, policies and new keys.

This room decides what users can read. No verdict ever depends on what it writes.
"""
