"""The floor of the signer: the objects that it knows, one module for each kind.

A module declares a kind of this project, from which its reader, its writer and its CRD follow
(`record`), or says what the checks need of a kind of Kubernetes and Cluster API. `decode` bounds
what is read; `resources` builds all paths. May import `signer.host_names` and `signer.errors`, and
does no I/O.
"""
