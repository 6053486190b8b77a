"""Endorsement certificates, their chains and revocation lists."""
