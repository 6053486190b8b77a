"""A simulation of large fleets on measured costs, for what no machine of ours can hold.

    make simulate
    make simulate ARGS='--list'

`costs` holds what other benches measured. `fleet` runs exchanges as events, with the servers of
`queues` and the pauses of `node`. `scenarios` names what happens to a fleet. `calculation` needs no
events, and `report` prints. The functions of the node's program say when a renewal is due and how
long a node pauses; the signer's caches say what a Machine takes. Nothing here measures a time.

What it leaves out: denied requests, limits on workers and memory, and pages of lists.
docs/performance.md explains the results.
"""
