"""The connection through which derived messages leave: a client in a thread beside Spark's.

Spark calls from threads of its own and waits; the client runs under Trio in the thread of the
publisher. Publishing waits as long as the server is away, so the job stands still in that time and
loses nothing.
"""

import contextlib
import functools
import threading
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

import msgspec
import trio
from attrs import field, frozen

from mdserver import limits
from mdserver.client import Client, Numbering, Publication, PublishError, Qos
from mdserver.core.events import StatusName
from mdserver.core.subjects import validate_subject
from mdserver.errors import InvalidSubjectError, MdserverError
from mdserver.pipeline.common.figures import META_SUBJECT
from mdserver.pipeline.common.requirements import PipelineError
from mdserver.pipeline.derive.operators import Derived

FINAL = {StatusName.PUBLISH_DENIED, StatusName.MESSAGE_SIZE_LIMIT_EXCEEDED}
TELL_TIMEOUT_S = 5
T = TypeVar("T")


@frozen
class Unpublished:
    """A message that the server refuses, however often it is repeated."""

    derived: Derived
    reason: str


@frozen
class PublishServer:
    """The server to publish to: its URLs, and the token if it asks for one."""

    urls: Sequence[str]
    token: str | None = field(default=None, repr=False)


class StepPublisher:
    """A connection to publish through, as a context manager.

    `publisher` and `numbering` are those of the earlier run, so that repeated messages get the same
    numbers. Entering waits until the connection stands, and raises PipelineError if no server
    answers in time. All methods may be called from any thread, one at a time; `leave` at any time.
    """

    def __init__(self, server: PublishServer, publisher: str, numbering: Numbering) -> None:
        self._server = server
        self._make = functools.partial(
            Client, server.urls, token=server.token, publisher=publisher, numbering=numbering
        )
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="publisher", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait()
        if self._failure is not None:
            self._thread.join()
            raise PipelineError(
                f"publishing to {', '.join(self._server.urls)} is not possible: {self._failure}"
            ) from self._failure
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.leave()
        self._thread.join()

    def leave(self) -> None:
        """End the connection; a `publish` that is waiting raises PipelineError."""
        with contextlib.suppress(trio.RunFinishedError):
            trio.from_thread.run_sync(self._scope.cancel, trio_token=self._trio)

    def publish(self, messages: Sequence[Derived]) -> list[Unpublished]:
        """Publish in order and wait for all results; return the messages that were refused.

        Those are the ones that the server would refuse again, by their subject, size or
        entitlement. Raises PipelineError for any other failure, and if the connection ends.
        """
        return self._call(self._publish, messages)

    def tell(self, job: str, progress: dict[str, Any]) -> None:
        """Publish the progress of a job to its meta-subject, without waiting for the result.

        Progress that cannot be published is dropped, so that the job does not fail for it.
        """
        with contextlib.suppress(PipelineError):
            self._call(self._tell, job, progress)

    @property
    def numbering(self) -> Numbering:
        """The last numbers of the publisher that the server took, and its identity."""
        return self._client.numbering

    def _call(self, function: Callable[..., Awaitable[T]], *arguments: Any) -> T:
        """Run a function in the thread of the client, and wait for what it returns."""
        try:
            return trio.from_thread.run(function, *arguments, trio_token=self._trio)
        except (trio.RunFinishedError, trio.Cancelled):
            raise PipelineError("the connection to the server was ended") from None

    def _run(self) -> None:
        """Run the client in its thread; a failure before the connection is for `__enter__`."""
        try:
            trio.run(self._stay)
        except (MdserverError, ValueError, trio.TooSlowError) as error:
            self._failure = error
        finally:
            self._ready.set()

    async def _stay(self) -> None:
        """Connect, let `__enter__` return, and keep the client until `leave`."""
        self._trio = trio.lowlevel.current_trio_token()
        with trio.CancelScope() as self._scope:
            async with self._make() as self._client:
                with trio.move_on_after(limits.PUBLISHER_CONNECT_TIMEOUT_S):
                    await self._client.connected()
                    self._ready.set()
                if not self._ready.is_set():
                    raise PipelineError("no server answered")
                await trio.sleep_forever()

    async def _publish(self, messages: Sequence[Derived]) -> list[Unpublished]:
        unpublished: list[Unpublished] = []
        sent: list[tuple[Derived, Publication]] = []
        for message in messages:
            try:
                # Filling in `to` may make it invalid: a segment that is missing is empty, and long
                # segments add up.
                validate_subject(message.subject)
            except InvalidSubjectError as error:
                unpublished.append(Unpublished(message, str(error)))
                continue
            fields = {"rule": message.rule, **message.fields}
            # All are submitted before the first result is waited for: a round trip for each would
            # bound the pace.
            sent.append(
                (
                    message,
                    await self._client.submit(message.subject, message.content, fields=fields),
                )
            )
        for message, publication in sent:
            try:
                await publication.outcome()
            except PublishError as error:
                if error.result.status not in FINAL:
                    raise PipelineError(f"publishing to {message.subject}: {error}") from error
                unpublished.append(Unpublished(message, str(error)))
        return unpublished

    async def _tell(self, job: str, progress: dict[str, Any]) -> None:
        content = msgspec.json.encode(progress).decode()
        subject = META_SUBJECT.format(job=job)
        with trio.move_on_after(TELL_TIMEOUT_S):
            await self._client.submit(subject, content, qos=Qos.STANDARD)
