"""Whole nodes and clusters: the installed programs on real control planes and kubelets."""
