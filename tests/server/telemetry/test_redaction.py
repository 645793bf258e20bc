"""Spans have no values of secrets from query strings."""

import pytest

from server.telemetry.redaction import redact_query


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", ""),
        ("verbose", "verbose"),
        ("signature_name=echo&author=1&b=", "signature_name=echo&author=1&b="),
        ("key=1", "key=REDACTED"),
        ("a=1&api_key=2;ApiKey=3&b=4", "a=1&api_key=REDACTED;ApiKey=REDACTED&b=4"),
        ("%6bey=1", "%6bey=REDACTED"),
        ("access_token=a=b==", "access_token=REDACTED"),
        ("key=", "key="),
        *(
            (f"color=blue&{name}=a%20b", f"color=blue&{name}=REDACTED")
            for name in (
                *("X-Amz-Signature", "X-Amz-Credential", "X-Amz-Security-Token", "sig"),
                *("AWSAccessKeyId", "Signature", "X-Goog-Signature", "password", "Authorization"),
            )
        ),
    ],
)
def test_values_of_secrets_are_redacted_and_names_are_kept(query: str, expected: str) -> None:
    assert redact_query(query) == expected
