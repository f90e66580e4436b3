"""What the errors of object storage mean, from the messages of the libraries that reach it."""

from __future__ import annotations

import re

# A pattern of the message in lower case -> what it means, and what to do.
_CAUSES = (
    (r"no_such_bucket|nosuchbucket|bucket does not exist", "there is no bucket {bucket}", "Create it"),
    (
        r"no credentials|169\.254\.169\.254|could not (find|load) .*credentials|metadata\.google",
        "no credentials were found",
        "Set them in the environment or give the machine a role that may use the bucket",
    ),
    (
        r"invalid_access_key|invalidaccesskeyid|signature_does_not_match|signaturedoesnotmatch"
        r"|expired_?token|invalid_?token",
        "the credentials are wrong or have expired",
        "Renew them",
    ),
    (
        r"access_denied|accessdenied|403|forbidden|privileges",
        "access is denied",
        "Allow listing, reading, writing and deleting objects under this prefix",
    ),
    (
        r"network_connection|error sending request|connection refused|could not resolve|timed? ?out"
        r"|response body error",
        "the storage does not answer",
        "Check the network and the endpoint",
    ),
    (
        r"internal_failure|internalerror|slow_?down|service_unavailable|status 5\d\d|\b50[0234]\b",
        "the storage fails again and again",
        "Try later",
    ),
)


def cause(scheme: str, path: str, message: str) -> str | None:
    """What the message means for this place, with the remedy; None if it is of another kind."""
    for pattern, meaning, remedy in _CAUSES:
        if re.search(pattern, message.lower()):
            found = meaning.format(bucket=path.partition("/")[0])
            return f"cannot use {scheme}://{path}: {found}. {remedy}, and run it again."
    return None


def explained(scheme: str, path: str, message: str) -> str:
    """As `cause`, or the first line of the message."""
    first = next((line.strip() for line in message.splitlines() if line.strip()), "unknown error")
    return cause(scheme, path, message) or f"cannot use {scheme}://{path}: {first}"
