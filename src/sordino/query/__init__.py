"""Budgeted private statistics over a silo's table."""
