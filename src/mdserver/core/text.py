"""Text from outside, made safe to repeat.

Text of a client, a token, a peer, a file name or a library's error may hold half of a surrogate
pair, which no encoder takes, or control characters, which a terminal obeys, and may have any
length. Such text passes through `safe_text` before it goes into an answer, a log or an audit line.
"""

SHOWN_CHARS_MAX = 200


def safe_text(text: object, chars_max: int = SHOWN_CHARS_MAX) -> str:
    """Return `text` as at most `chars_max` characters, with "..." after them if it was longer.

    Characters that cannot be printed are written as escapes such as `\\ud800` or `\\n`, so the
    result is valid Unicode and stays on one line.
    """
    said = text if isinstance(text, str) else str(text)
    if len(said) > chars_max:
        said = said[:chars_max] + "..."
    if said.isprintable():
        return said
    return "".join(one if one.isprintable() else _escaped(one) for one in said)


def is_unicode(text: str) -> bool:
    """Return whether `text` can be encoded: it has no half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
