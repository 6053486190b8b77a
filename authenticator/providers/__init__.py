"""Sources of the provider ID, the node name and the addresses of this machine.

One class per platform, each an entry point of the group `node_attestation.providers`, so
that other packages can add one (docs/providers.md). A provider is queried only if a setting names
it, and only when an exchange starts: never for a cached certificate. This package imports the
errors, the model and `bounded_http`, and no other package of the program.

The identity from a provider is a claim of this node like any other. The signer verifies it with the
Machine, its endorsement key and the claims (docs/protocol.md section 5). A wrong identity costs
this node its certificate, and other nodes nothing.
"""
