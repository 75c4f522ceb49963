"""Frameworks that are asked, one file each. Each imports its framework when its targets are made."""
