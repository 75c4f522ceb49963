"""Nouns, errors, checks, named random streams and registries. No torch, no files, no network."""
