"""A check for schemathesis: every response has one of the statuses in EXPECTED_STATUSES."""

import os

import schemathesis

EXPECTED = os.environ.get("EXPECTED_STATUSES", "").split()


@schemathesis.check
def expected_status(ctx, response, case):
    assert str(response.status_code) in EXPECTED, f"{response.status_code} is not one of {EXPECTED}"
