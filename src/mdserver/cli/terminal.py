"""What goes to a terminal: no text of others moves its cursor, colours it or gives it commands."""

_KEPT = frozenset("\n\t")


def harmless(text: str) -> str:
    """Return `text` with all that cannot be printed written as in JSON, but line ends and tabs."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one in _KEPT else _escaped(one) for one in text)


def harmless_bytes(block: bytes) -> bytes:
    """The same for what a terminal takes for UTF-8."""
    return harmless(block.decode("utf-8", "backslashreplace")).encode()


def _escaped(one: str) -> str:
    units = one.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
