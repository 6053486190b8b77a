"""Challenges, credential activation, certificate authorities and certificates."""
