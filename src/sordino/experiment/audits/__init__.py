"""From a finished run to what attacks are given: one file per kind of subject."""
