"""Rehearses a release: publishes two versions to local stand-ins of every place that users look at.

`make rehearse-release` runs it. docs/releasing.md says what a person does to publish for real.
"""
