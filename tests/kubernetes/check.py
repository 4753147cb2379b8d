"""Checks manifests against the schemas that Kubernetes publishes: check.py FILE...

Prints a line for each object, and for each fault. Ends with 1 if there is a fault. Unknown fields are faults. A
ServiceMonitor is checked by servicemonitor.schema.json.
"""

import json
import pathlib
import sys

import jsonschema
import kubernetes_validate
import yaml

# The oldest release whose `preStop` can sleep, and the newest whose schemas are here.
VERSIONS = ["1.30", "1.37"]
SERVICE_MONITOR = json.loads(pathlib.Path(__file__).with_name("servicemonitor.schema.json").read_text())


def faults(document):
    if document["kind"] == "ServiceMonitor":
        validator = jsonschema.Draft202012Validator(SERVICE_MONITOR)
        yield from validator.iter_errors(document)
        return
    for version in VERSIONS:
        try:
            kubernetes_validate.validate(document, version, strict=True)
        except jsonschema.ValidationError as error:
            yield error


wrong = False
for path in sys.argv[1:]:
    for document in yaml.safe_load_all(pathlib.Path(path).read_text()):
        name = f"{document['kind']} {document['metadata']['name']}"
        found = list(faults(document))
        for error in found:
            place = ".".join(str(part) for part in error.absolute_path)
            print(f"{name}: {place}: {error.message}")
        if not found:
            print(f"{name}: good")
        wrong = wrong or bool(found)
sys.exit(1 if wrong else 0)
