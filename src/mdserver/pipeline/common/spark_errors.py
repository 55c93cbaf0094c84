"""Failures of Spark, Delta, Arrow or the disk, reported in one sentence."""

import contextlib
import re
from collections.abc import Iterator

import pyarrow as pa
from deltalake.exceptions import CommitFailedError, DeltaError
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from mdserver.pipeline.common.requirements import PipelineError
from mdserver.pipeline.common.store_errors import is_of_store, store_reason, unfolded

EXCEPTION = re.compile(r"^(?:: )?(?:\w+\.)+(?P<name>\w+): (?P<said>.+)$", re.MULTILINE)
CARRIERS = ("Py4JJavaError",)
OF_THE_DISK = {
    "No space left on device": "the disk is full: make room and start the job again",
    "Disk quota exceeded": "the disk quota is used up: make room and start the job again",
    "Read-only file system": "the file system is read-only: give a folder that can be written to",
    "Permission denied": "permission denied: give a folder that this user can write to",
}
"""Texts of the operating system, deep within an error of Spark's, and what they mean."""
ELSEWHERE = "another process changed the same table at the same time: start the job again"


def reason_of(error: object) -> str:
    """Return the one sentence of an error, or of its text, that says what happened.

    In a text of Spark's that is a refusal of the disk, the sentence of a PipelineError, or a
    refusal of an object store, if it has one, else the first exception that does more than carry
    another one.
    """
    text = unfolded(str(error))
    if isinstance(error, CommitFailedError):
        return ELSEWHERE
    if not isinstance(error, PipelineError):
        for told, meaning in OF_THE_DISK.items():
            if told in text:
                return meaning
        raised = [(match["name"], match["said"]) for match in EXCEPTION.finditer(text)]
        # The last one was raised because of those above it.
        for name, said in reversed(raised):
            if name == PipelineError.__name__:
                return said
        if is_of_store(text):
            return store_reason(text)
        for name, said in raised:
            if name not in CARRIERS:
                return f"{name}: {said}"
    return text.strip().partition("\n")[0]


@contextlib.contextmanager
def told(job: str) -> Iterator[None]:
    """Raise failures of a block as a PipelineError of one sentence.

    Errors that are mistakes in the program, such as a TypeError, pass as they are.
    """
    try:
        yield
    except OSError as error:
        place = f" {error.filename}:" if error.filename else ""
        raise PipelineError(f"{job} failed:{place} {reason_of(error.strerror or error)}") from error
    except (DeltaError, Py4JError, PySparkException, pa.ArrowInvalid) as error:
        raise PipelineError(f"{job} failed: {reason_of(error)}") from error
