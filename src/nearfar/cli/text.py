"""Text that is safe to show: names and messages may come from files that others wrote."""

from __future__ import annotations


def printable(text: str) -> str:
    r"""`text` with every character but line ends escaped that a terminal might obey or hide.

    These are control characters, of which escape sequences are made, and those that are invisible
    or change the direction of writing.

    Examples
    --------
    >>> print(printable("a\x1b[31mred\u202e"))
    a\x1b[31mred\u202e
    """
    if text.isprintable():
        return text
    return "".join(
        character
        if character.isprintable() or character == "\n"
        else character.encode("unicode_escape").decode()
        for character in text
    )
