"""What an object store, or the library that asks it, fails with, in one sentence.

Stores say most of it in XML, within an error that repeats the request. At an address without a
store the library has the reason in details that are of no use to anybody else.
"""

import re

REASON_CHARACTERS_MAX = 300
OF_A_STORE = re.compile(
    r"Generic (?!LocalFileSystem|delta)\w+ error|Error performing [A-Z]+ |<Code>"
    r"|lacked the necessary privileges"
)
ERROR_BODY = re.compile(r"<Code>([^<]*)</Code>(?:\s*<Message>([^<]*)</Message>)?")
REQUEST = re.compile(
    r"Error performing (?P<method>[A-Z]+) (?P<url>[^\s?]+)\S*"
    r" in [^\n]*? - (?:Server returned non-2xx status code: )?(?P<told>[^\n]*)"
)
DETAILS = re.compile(r'message: "([^"\n]+)"|error: "([^"\n]+)"|(InvalidContentType)')
"""What the operating system said, or that it is no TLS that was answered."""
METADATA = re.compile(r"//169\.254\.169\.254/|/latest/api/token")
"""Where clouds give credentials to their computers; asked if the environment has none."""
TIMED_OUT = re.compile(r"kind: Timeout|TimedOut")
NO_CREDENTIALS = (
    "no credentials: the environment has none (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY,"
    " for example), and this computer is given none by its cloud"
)
MORE_TIME = "timed out (AWS_TIMEOUT, GOOGLE_TIMEOUT or AZURE_TIMEOUT gives it more time)"
REMEDIES = (
    ("NoSuchBucket|ContainerNotFound", "make it, or look at its name and at AWS_ENDPOINT_URL"),
    ("InvalidAccessKeyId|Access Key Id you provided", "look at AWS_ACCESS_KEY_ID"),
    ("SignatureDoesNotMatch|signature we calculated", "look at AWS_SECRET_ACCESS_KEY"),
    ("ExpiredToken|InvalidToken|token has expired", "get new credentials, with AWS_SESSION_TOKEN"),
    ("RequestTimeTooSkewed", "set the clock of this computer"),
    (
        "AuthorizationHeaderMalformed|PermanentRedirect|configured region",
        "look at AWS_REGION and AWS_ENDPOINT_URL",
    ),
    (
        "AccessDenied|Access Denied|necessary privileges|40[13] ",
        "these credentials lack a right there (docs/pipeline.md lists them)",
    ),
    ("BadScheme", "an address of http:// needs AWS_ALLOW_HTTP=true"),
    (
        "kind: Connect|error sending request",
        "look at AWS_ENDPOINT_URL, the address and whether it is http:// or https://",
    ),
    ("Missing (SecretAccessKey|AccessKeyId)", "set both, AWS_ACCESS_KEY_ID and its secret"),
)
"""Patterns of what was said, and what to do: the first one that is found counts."""


def is_of_store(text: str) -> bool:
    """Return whether an error, by its text, is one of an object store."""
    return OF_A_STORE.search(text) is not None


def store_reason(error: object) -> str:
    """Return what an object store said, or why it was not reached, and what to look at."""
    text = str(error)
    if METADATA.search(text) is not None:
        return NO_CREDENTIALS
    told = _told(text)
    if TIMED_OUT.search(text) is not None:
        return f"{told}: {MORE_TIME}"
    found = remedy(text)
    return told if found is None else f"{told.rstrip('.')}: {found}"


def remedy(text: str) -> str | None:
    """Return what to do about an error, None if nothing is known."""
    for pattern, found in REMEDIES:
        if re.search(pattern, text) is not None:
            return found
    return None


def _told(text: str) -> str:
    """Return the one sentence of an error's text, without the query of a request."""
    said = ERROR_BODY.search(text)
    if said is not None:
        return f"{said[1]}: {said[2]}" if said[2] else said[1]
    request = REQUEST.search(text)
    if request is None:
        return text.partition("\n")[0][:REASON_CHARACTERS_MAX]
    details = DETAILS.search(text)
    why = request["told"] if details is None else next(filter(None, details.groups()))
    return f"{request['method']} {request['url']}: {why[:REASON_CHARACTERS_MAX]}".rstrip(": ")
