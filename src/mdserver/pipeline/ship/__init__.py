"""Send the sealed segments of a journal to a place from which the archive reads them."""
