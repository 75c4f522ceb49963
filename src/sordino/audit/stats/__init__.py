"""Estimators with a stated confidence, numpy and scipy only. Each holds its level on null and known worlds (tests)."""
