"""What an object store, or the library that asks it, fails with, in one sentence.

Stores say most of it in XML, within an error that repeats the request. obstore gives the reason of
a failed request in details behind the error, deltalake on further lines, each behind an arrow.
"""

import re

from attrs import frozen

REASON_CHARACTERS_MAX = 300
FOLDED = re.compile(r"[ \t]*\n\s*↳ ?")
"""Where deltalake goes on with what caused an error, on a line of its own."""
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
OF_A_STORE = re.compile(
    r"Generic (?:S3|GCS|MicrosoftAzure|HTTP|Config|URL) error|Error performing [A-Z]+ \S+ in "
    r"|The operation lacked the necessary privileges"
)
ERROR_BODY = re.compile(
    r"<Error(?: [^>]*)?>\s*<Code>([A-Za-z]\w*)</Code>(?:\s*<Message>([^<]*)</Message>)?"
)
REQUEST_ID = re.compile(r"\s*\bRequestId:.*", re.DOTALL)
"""What Azure puts behind the message, on lines of their own."""
REQUEST = re.compile(
    r"Error performing (?P<method>[A-Z]+) (?P<url>\S+)"
    r" in [^\n]*? - (?:Server returned non-2xx status code: )?(?P<told>[^\n]*)"
)
CARRIERS = re.compile(
    r"(?:(?:HTTP error|error sending request|client error \(\w+\)|tcp connect error|dns error"
    r"|builder error): )+"
)
BESIDE = re.compile(r": *<.*| \(os error \d+\)")
"""A page in HTML, and what the operating system calls an error."""
DETAILS = re.compile(r'message: "([^"\n]+)"|error: "([^"\n]+)"|(InvalidContentType)')
"""What the operating system said, or that it is no TLS that was answered."""
PASSWORD = re.compile(r"(\w://)(?:[^/\s@:]*:[^/\s@]*@)?([^\s?]*)(?:\?[^\s<]*)?")
"""A URL, with the parts that may hold one outside the groups: user information and query."""
METADATA = re.compile(r"//169\.254\.169\.254/|//metadata\.google\.internal/|/latest/api/token")
"""Where clouds give credentials to their computers; asked if the environment has none."""
CONNECTING = re.compile(r"kind: Connect\b|legacy::Error\(\s*Connect,|client error \(Connect\)")
TIMED_OUT = re.compile(r"kind: Timeout|TimedOut|operation timed out")


@frozen
class Variables:
    """What the environment has for the library of a provider, in the words of a remedy."""

    address: str
    credentials: str
    timeout: str
    allow_http: str


S3 = Variables(
    "AWS_ENDPOINT_URL",
    "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    "AWS_TIMEOUT gives it more time",
    "AWS_ALLOW_HTTP=true",
)
GOOGLE = Variables(
    "its address",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "GOOGLE_TIMEOUT gives it more time",
    "GOOGLE_ALLOW_HTTP=true",
)
AZURE = Variables(
    "AZURE_STORAGE_ACCOUNT_NAME or AZURE_STORAGE_ENDPOINT",
    "AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_KEY",
    "AZURE_TIMEOUT gives it more time",
    "AZURE_ALLOW_HTTP=true",
)
UNKNOWN = Variables(
    "its address", "the credentials", "look at the network", "to be allowed by the environment"
)
"""No variable is named unless it is known which provider's it has to be."""
OF_SCHEMES = {"s3": S3, "s3a": S3, "gs": GOOGLE, "az": AZURE, "abfs": AZURE, "abfss": AZURE}
PROVIDER = re.compile(r"Generic (S3|GCS|MicrosoftAzure) error")
OF_PROVIDERS = {"S3": S3, "GCS": GOOGLE, "MicrosoftAzure": AZURE}
OF_S3 = (
    ("InvalidAccessKeyId|Access Key Id you provided", "look at AWS_ACCESS_KEY_ID"),
    ("SignatureDoesNotMatch|signature we calculated", "look at AWS_SECRET_ACCESS_KEY"),
    ("ExpiredToken|InvalidToken|token has expired", "get new credentials, with AWS_SESSION_TOKEN"),
    ("RequestTimeTooSkewed", "set the clock of this computer"),
    (
        "AuthorizationHeaderMalformed|PermanentRedirect|configured region",
        "look at AWS_REGION and AWS_ENDPOINT_URL",
    ),
    ("Missing (SecretAccessKey|AccessKeyId)", "set both, AWS_ACCESS_KEY_ID and its secret"),
)
"""As `REMEDIES`, of what only stores with the protocol of S3 say."""
REMEDIES = (
    (
        "NoSuchBucket|ContainerNotFound|FilesystemNotFound",
        "make it, or look at its name and at {address}",
    ),
    ("<Code>AuthenticationFailed<|non-2xx status code: 401 ", "look at {credentials}"),
    (
        "AccessDenied|Access Denied|lacked the necessary privileges|non-2xx status code: 403 ",
        "these credentials lack a right there (docs/pipeline.md lists them)",
    ),
    ("BadScheme|URL scheme is not allowed", "an address of http:// needs {allow_http}"),
    (
        f"{CONNECTING.pattern}|error sending request",
        "look at {address}, and whether it is http:// or https://",
    ),
)
"""Patterns of what was said, and what to do: the first one that is found counts."""


def unfolded(text: str) -> str:
    """Return the text of an error with deltalake's causes on one line, as others have them."""
    return FOLDED.sub(": ", COLOUR.sub("", text))


def is_of_store(text: str) -> bool:
    """Return whether an error, by its text, is one of an object store."""
    return OF_A_STORE.search(text) is not None


def store_reason(error: object, scheme: str = "") -> str:
    """Return what an object store said, or why it was not reached, and what to look at.

    Without the scheme of its URI, the provider is the one that the error names.
    """
    text = PASSWORD.sub(r"\1\2", unfolded(str(error)))
    variables = OF_SCHEMES.get(scheme) or _named(text)
    if METADATA.search(text) is not None:
        return (
            f"no credentials: the environment has none ({variables.credentials}, for example), and"
            " this computer is given none by its cloud"
        )
    told = _told(text)
    if _timed_out(text):
        return f"{told}: {variables.timeout}"
    found = remedy(text, variables)
    return told if found is None else f"{told.rstrip('.')}: {found}"


def remedy(text: str, variables: Variables) -> str | None:
    """Return what to do about an error, None if nothing is known."""
    known = OF_S3 + REMEDIES if variables in (S3, UNKNOWN) else REMEDIES
    for pattern, found in known:
        if re.search(pattern, text) is not None:
            return found.format(
                address=variables.address,
                credentials=variables.credentials,
                allow_http=variables.allow_http,
            )
    return None


def _named(text: str) -> Variables:
    """Return the variables of the provider that an error names."""
    found = PROVIDER.search(text)
    return UNKNOWN if found is None else OF_PROVIDERS[found[1]]


def _timed_out(text: str) -> bool:
    """Return whether a store was reached and did not answer in time."""
    return TIMED_OUT.search(text) is not None and CONNECTING.search(text) is None


def _told(text: str) -> str:
    """Return the one sentence of an error's text."""
    said = ERROR_BODY.search(text)
    if said is not None:
        message = " ".join(REQUEST_ID.sub("", said[2] or "").split())
        return f"{said[1]}: {message}" if message else said[1]
    request = REQUEST.search(text)
    if request is None:
        found = OF_A_STORE.search(text)
        line = text[0 if found is None else found.start() :].partition("\n")[0]
        return line[:REASON_CHARACTERS_MAX]
    details = DETAILS.search(text)
    if _timed_out(text):
        why = "timed out"
    elif details is not None:
        why = next(filter(None, details.groups()))
    else:
        why = BESIDE.sub("", CARRIERS.sub("", request["told"]))
    return f"{request['method']} {request['url']}: {why[:REASON_CHARACTERS_MAX]}".rstrip(": ")
