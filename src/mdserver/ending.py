"""The end of a command by SIGTERM, which is as orderly as the one by Ctrl-C."""

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from types import FrameType

import click


def end_in_order_on_sigterm() -> None:
    """Have SIGTERM do what Ctrl-C does until the present click command has ended."""
    click.get_current_context().with_resource(_interrupted_by_sigterm())


@contextlib.contextmanager
def _interrupted_by_sigterm() -> Iterator[None]:
    """Take SIGTERM as SIGINT within the block; at its end the process ends by SIGTERM after all.

    So supervisors see the status that they know. A second SIGTERM ends the process at once.
    """
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield  # whoever set it decides
        return
    noted: list[int] = []

    def interrupt(number: int, _frame: FrameType | None) -> None:
        noted.append(number)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        # A shell starts programs in the background with SIGINT ignored.
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        # By the signal, because Trio and the start of Spark have handlers of their own for it.
        signal.raise_signal(signal.SIGINT)

    signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if noted:
            with contextlib.suppress(OSError):
                sys.stdout.flush()
            os.kill(os.getpid(), signal.SIGTERM)
