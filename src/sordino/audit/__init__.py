"""Attack a guarantee and say what was found: lower bounds beside the claim, sensors, leakage, conformance.

promise.py     what is attacked: a ledger's claim, or what another framework declares
findings.py    the answer, with its grade: falsification, conformance or leakage
stats/         estimators with a stated confidence; numpy only
sensor/        is what runs what was accounted? drives any step or aggregation as a black box
subjects/      what an attack is given, one kind a file
attacks/       one file each, by name in a registry
conformance/   the same questions put to other frameworks

The room reads models, data and ledgers and knows no experiment: `sordino.experiment.audits` prepares the subjects.
"""
