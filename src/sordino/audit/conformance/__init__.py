"""The same checks for every framework: one adapter a framework, one file a group of checks."""
