"""What failed in a run of KubeVirt's tests and is no exception, and exceptions that passed.

compare.py REPORT.json EXCEPTIONS
"""

import json
import sys
from pathlib import Path

report, exceptions = (Path(argument).read_text() for argument in sys.argv[1:])
known = {line for line in exceptions.splitlines() if line and not line.startswith("#")}
states = {}
for suite in json.loads(report):
    for spec in suite["SpecReports"] or []:
        if spec["LeafNodeType"] != "It":
            if spec["State"] == "failed":
                sys.exit(f"{spec['LeafNodeType']} failed: {spec['Failure']['Message']}")
            continue
        if spec["State"] not in ("skipped", "pending"):
            texts = (spec["ContainerHierarchyTexts"] or []) + [spec["LeafNodeText"]]
            states[" ".join(texts)] = spec
failed = {name for name, spec in states.items() if spec["State"] != "passed"}
for name in sorted(failed - known):
    message = states[name]["Failure"]["Message"].strip().splitlines()
    print(f"FAILED  {name}", *message[:12], sep="\n        ")
for name in sorted(known & states.keys() - failed):
    print(f"PASSED  {name}\n        is an exception; remove it")
print(f"{len(states)} ran, {len(states) - len(failed)} passed, {len(failed & known)} failed as expected")
sys.exit(bool(failed - known or known & states.keys() - failed))
