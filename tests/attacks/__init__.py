"""Attacks that others suffered or that reviews found; each test is named after one."""
