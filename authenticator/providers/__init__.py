"""Where the provider ID, the node name and the addresses of this machine come from.

One module per platform, each an entry point of the group `kubelet_authenticator_tpm.providers`, so
that others can add theirs (docs/providers.md). A provider is asked only when a setting names it,
and only when an exchange begins: never for a certificate that is in the cache.

What a provider tells is a claim of this node like any other: the signer believes none of it before
the Machine, its endorsement key and the claims agree (docs/protocol.md section 5). A wrong answer
costs this node its certificate, and nobody else anything.
"""
