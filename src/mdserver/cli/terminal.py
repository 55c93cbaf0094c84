"""Text that is safe on a terminal.

Messages and names are written by others. Control characters in them could move the cursor, change
colours or give the terminal commands, so they are escaped before they are printed.
"""

_KEPT = frozenset("\n\t")


def harmless(text: str) -> str:
    """Return `text` with control characters escaped as in JSON, except line ends and tabs."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one in _KEPT else _escaped(one) for one in text)


def harmless_bytes(block: bytes) -> bytes:
    """Return bytes made harmless as the UTF-8 text that a terminal takes them for."""
    return harmless(block.decode("utf-8", "backslashreplace")).encode()


def _escaped(one: str) -> str:
    units = one.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
