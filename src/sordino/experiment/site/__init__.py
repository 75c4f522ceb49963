"""A silo on its own machine: one long-lived process with its data, its ledger, its rules and the loaded model."""
