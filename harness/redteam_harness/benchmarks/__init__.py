"""Benchmarks that somebody else made, on real forks.

Each has a package of its own here, and a world (schema, loader, tools) under seeds/. None of a benchmark's
data is part of this project: the user names the folder that it lies in.
"""
