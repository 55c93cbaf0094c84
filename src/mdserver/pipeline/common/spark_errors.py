"""What Spark says of a failure, in one sentence."""

import re

from mdserver.pipeline.common.requirements import PipelineError

EXCEPTION = re.compile(r"^(?:: )?(?:\w+\.)+(?P<name>\w+): (?P<said>.+)$", re.MULTILINE)
CARRIERS = ("Py4JJavaError",)


def reason_of(error: object) -> str:
    """The sentence of an error, or of its text, that says what happened.

    In a text of Spark's that is the first exception that does not only carry another one.
    """
    text = str(error)
    if not isinstance(error, PipelineError):
        for match in EXCEPTION.finditer(text):
            if match["name"] not in CARRIERS:
                own = match["name"] == PipelineError.__name__
                return match["said"] if own else f"{match['name']}: {match['said']}"
    return text.strip().partition("\n")[0]
