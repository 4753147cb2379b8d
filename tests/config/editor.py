"""What an editor says of configurations: the faults that a JSON Schema finds.

Standard input is {"schema": …, "files": {NAME: TOML}}, standard output {NAME: FAULTS}.
"""

import json
import sys
import tomllib

from jsonschema import Draft202012Validator

asked = json.load(sys.stdin)
Draft202012Validator.check_schema(asked["schema"])
schema = Draft202012Validator(asked["schema"])
faults = {
    name: [f"{fault.json_path}: {fault.message}" for fault in schema.iter_errors(tomllib.loads(text))]
    for name, text in asked["files"].items()
}
json.dump(faults, sys.stdout)
