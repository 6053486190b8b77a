"""From raw objects to the values of `signer.model`; nothing here asks anybody."""
