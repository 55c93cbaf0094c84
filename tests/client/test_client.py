"""The Trio client against a server that follows a script."""

import zlib
from typing import Any

import pytest
import trio
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, BytesMessage, CloseConnection, Request

from mdserver.client import (
    Client,
    Message,
    Notification,
    Position,
    PublishError,
    Qos,
    ReconnectPolicy,
    ReconnectSettings,
    StoppedError,
    SubscribeError,
)
from mdserver.client.message import inflated


async def take(source: Any) -> Any:
    """The next message or status, which must not take long."""
    with trio.fail_after(5):
        return await anext(source)


def client(server: Any, **options: Any) -> Client:
    options.setdefault("encoding", "json")
    return Client([server.address], **options)


async def statuses(client: Client, count: int) -> list[str]:
    return [(await take(client.statuses)).status.name for _ in range(count)]


async def test_messages_of_a_subscription(scripted: Any) -> None:
    async with client(scripted, token="t") as it, it.subscribe("/a/b", "/w/*") as subscription:
        peer = await scripted.accept()
        assert (await peer.greet())["token"] == "t"
        assert (await peer.hear("subscribe"))["subjects"] == ["/a/b"]
        ping = await peer.hear("ping")
        await peer.hear("subscribe")
        await peer.say({"op": "pong", "t": ping["t"]})
        await peer.say({"op": "pong", "t": (await peer.hear("ping"))["t"]})
        await subscription.confirmed()
        await peer.message("/a/b", 1, fields={"x": "y"}, reply_subject="/r/1", closure="c")
        await peer.message("/w/1", 5, match="/w/*", content_base64="AAE=", content=None)
        await peer.message("/w/1", 0, match="/w/*", epoch=0, qos="STANDARD")
        first, second, third = [await take(subscription) for _ in range(3)]
        assert first == Message(
            "/a/b", "1", {"x": "y"}, position=Position(1, 1), reply_subject="/r/1", closure="c"
        )
        assert (second.content, second.match) == (b"\0\1", "/w/*")
        assert (third.position, third.qos) == (None, Qos.STANDARD)
        assert it.get_subjects() == ["/a/b", "/w/*"]
        subscription.end()
        assert (await peer.hear("unsubscribe"))["subjects"] == ["/a/b", "/w/*"]
        assert [message async for message in subscription] == []
        assert await statuses(it, 1) == ["SERVER_UP"]
        peer.done.set()


async def test_history_and_conflation(scripted: Any) -> None:
    async with client(scripted) as it:
        it.subscribe_with_history(["/h/1"], 7)
        it.subscribe_with_conflation(["/c/1"], 500)
        peer = await scripted.accept()
        await peer.greet()
        sent = [await peer.hear("subscribe") for _ in range(2)]
        assert [(c.get("history"), c.get("conflation_ms")) for c in sent] == [
            (7, None),
            (None, 500),
        ]
        peer.done.set()


async def test_publications_have_results(scripted: Any) -> None:
    async with client(scripted) as it:
        peer = await scripted.accept()
        await peer.greet()
        fine = await it.submit("/a/b", "1", fields={"x": "y"}, closure="c")
        refused = await it.submit("/a/b", b"\xff", retained=False, qos=Qos.STANDARD)
        first, second = await peer.hear("publish"), await peer.hear("publish")
        assert (first["content"], first["fields"], first["number"]) == ("1", {"x": "y"}, 1)
        assert (second["content_base64"], second["retained"], second["qos"]) == (
            "/w==",
            False,
            "STANDARD",
        )
        status = {"op": "status", "status": "PUBLISH_OK", "id": first["id"], "closure": "c"}
        await peer.say(status | {"epoch": 1, "seq": 3})
        denied = {"op": "status", "status": "PUBLISH_DENIED", "id": second["id"], "reason": "no"}
        await peer.say(denied)
        assert (await fine.outcome()).seq == 3
        with pytest.raises(PublishError, match="PUBLISH_DENIED: no") as caught:
            await refused.outcome()
        assert caught.value.result.certain is True
        assert await statuses(it, 2) == ["SERVER_UP", "PUBLISH_OK"]
        peer.done.set()


async def test_submitting_waits_for_room(scripted: Any) -> None:
    async with client(scripted, publisher=None) as it, trio.open_nursery() as nursery:
        peer = await scripted.accept()
        await peer.greet()
        for _ in range(1000):
            await it.submit("/a/b", "x")
        nursery.start_soon(it.submit, "/a/b", "late")
        heard = [await peer.hear("publish") for _ in range(1000)]
        await peer.say({"op": "status", "status": "PUBLISH_OK", "id": heard[0]["id"]})
        assert (await peer.hear("publish"))["content"] == "late"
        peer.done.set()
        await peer.close(4101)


async def test_leaving_waits_for_results(scripted: Any) -> None:
    async with trio.open_nursery() as nursery:

        async def publish() -> None:
            async with client(scripted) as it:
                publication = await it.submit("/a/b", "x")
            assert publication.result is not None
            assert publication.result.status.name == "PUBLISH_OK"

        nursery.start_soon(publish)
        peer = await scripted.accept()
        await peer.greet()
        command = await peer.hear("publish")
        await peer.say({"op": "status", "status": "PUBLISH_OK", "id": command["id"]})
        await peer.closed()
        peer.done.set()


async def test_an_exception_of_the_body_comes_out_as_it_is(scripted: Any) -> None:
    async def fail() -> None:
        async with client(scripted) as it:
            await it.submit("/a/b", "x")
            raise KeyError

    with pytest.raises(KeyError):
        await fail()


async def test_a_cancelled_body_leaves_nothing_behind(scripted: Any) -> None:
    with trio.CancelScope() as scope:
        async with client(scripted) as it, it.subscribe("/a/b") as subscription:
            peer = await scripted.accept()
            await peer.greet()
            await peer.hear("ping")
            peer.done.set()
            await it.connected()
            scope.cancel()
            await take(subscription)
    assert scope.cancelled_caught
    assert await peer.closed() == 1000


async def test_lost_connections_are_mended(scripted: Any, at_once: ReconnectSettings) -> None:
    async with client(scripted, reconnect=at_once) as it, it.subscribe("/a/b") as subscription:
        peer = await scripted.accept()
        await peer.greet()
        await peer.message("/a/b", 4)
        publication = await it.submit("/a/b", "x")
        number = (await peer.hear("publish"))["number"]
        await peer.close(1011, "broken")
        peer.done.set()
        peer = await scripted.accept()
        await peer.greet()
        command = await peer.hear("subscribe")
        assert command["positions"] == {"/a/b": {"history": "h1", "epoch": 1, "seq": 4}}
        command = await peer.hear("publish")
        assert command["number"] == number
        await peer.message("/a/b", 4, type="RECOVERED")
        await peer.message("/a/b", 5, type="RECOVERED")
        await peer.say({"op": "status", "status": "PUBLISH_OK", "id": command["id"]})
        await publication.outcome()
        assert [(await take(subscription)).content for _ in range(2)] == ["4", "5"]
        assert await statuses(it, 3) == ["SERVER_UP", "SERVER_DOWN", "SERVER_UP"]
        peer.done.set()


async def test_nobody_listens(scripted: Any, at_once: ReconnectSettings) -> None:
    with trio.socket.socket() as taken:
        await taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        async with Client([address, f"0 {scripted.address}"], reconnect=at_once, encoding="json"):
            with trio.fail_after(20):
                peer = await scripted.accept()
                await peer.greet()
            peer.done.set()


async def test_a_refused_upgrade_says_why(scripted: Any) -> None:
    scripted.reject = (503, b"too many connections")
    async with client(scripted) as it:
        notice = await take(it.statuses)
        assert notice.status is Notification.SERVER_DOWN
        assert notice.info is not None
        assert notice.info.endswith("the server answered HTTP 503: too many connections")


async def test_a_server_of_another_kind_is_no_server(scripted: Any) -> None:
    scripted.subprotocol = None
    async with client(scripted) as it:
        notice = await take(it.statuses)
        assert str(notice.info).endswith("the server does not speak mdserver.v1.json")
        (await scripted.accept()).done.set()


async def test_a_plain_port_does_not_speak_tls(scripted: Any) -> None:
    async with client(scripted, encryption=True) as it:
        notice = await take(it.statuses)
        assert notice.status is Notification.SERVER_DOWN


async def test_a_denied_client_stops_until_it_gets_a_token(scripted: Any) -> None:
    async with client(scripted) as it, it.subscribe("/a/b") as subscription:
        peer = await scripted.accept()
        await peer.greet()
        await it.connected()
        await peer.close(4101, "no such user")
        peer.done.set()
        with pytest.raises(StoppedError, match="no such user"):
            await take(subscription)
        with pytest.raises(StoppedError):
            await it.connected()
        with pytest.raises(PublishError):
            await it.publish("/a/b", "x")
        it.set_entitlement_token("better")
        peer = await scripted.accept()
        assert (await peer.greet())["token"] == "better"
        await it.connected()
        peer.done.set()


async def test_a_refused_subject_raises_in_its_place(scripted: Any) -> None:
    async with client(scripted) as it, it.subscribe("/a/b", "/a/c") as subscription:
        peer = await scripted.accept()
        await peer.greet()
        await peer.message("/a/c", 1)
        deny = {"op": "status", "status": "SUBSCRIBE_DENY", "subject": "/a/b", "id": "s1"}
        await peer.say(deny | {"reason": "no right"})
        await peer.message("/a/c", 2)
        assert (await take(subscription)).content == "1"
        with pytest.raises(SubscribeError, match="/a/b: no right"):
            await take(subscription)
        assert (await take(subscription)).content == "2"
        assert it.get_subjects() == ["/a/c"]
        peer.done.set()


async def test_a_slow_application_holds_its_subscription_and_recovers(scripted: Any) -> None:
    async with client(scripted, buffer_messages=4) as it, it.subscribe("/a/b") as subscription:
        peer = await scripted.accept()
        await peer.greet()
        for seq in range(1, 5):
            await peer.message("/a/b", seq)
        assert (await peer.hear("unsubscribe"))["subjects"] == ["/a/b"]
        await peer.message("/a/b", 5)
        assert [(await take(subscription)).content for _ in range(4)] == ["1", "2", "3", "4"]
        ping = await peer.hear("ping")
        command = await peer.hear("subscribe")
        assert command["positions"]["/a/b"]["seq"] == 4
        await peer.message("/a/b", 6)  # sent before the subscription was taken up again
        await peer.say({"op": "pong", "t": ping["t"]})
        await peer.message("/a/b", 5, type="RECOVERED")
        assert (await take(subscription)).content == "5"
        peer.done.set()


async def test_pause_and_resume(scripted: Any) -> None:
    async with client(scripted) as it, it.subscribe("/a/b") as subscription:
        peer = await scripted.accept()
        await peer.greet()
        await peer.message("/a/b", 1)
        await take(subscription)
        it.pause()
        await peer.hear("unsubscribe")
        it.resume()
        assert (await peer.hear("subscribe"))["positions"]["/a/b"]["seq"] == 1
        peer.done.set()


async def test_request_and_reply(scripted: Any) -> None:
    async with client(scripted) as it, trio.open_nursery() as nursery:
        peer = await scripted.accept()
        await peer.greet()
        replies: list[Message] = []

        async def ask() -> None:
            replies.append(await it.request("/service/time", "now?"))

        nursery.start_soon(ask)
        subject = (await peer.hear("subscribe"))["subjects"][0]
        command = await peer.hear("publish")
        assert command["reply_subject"] == subject
        await peer.say({"op": "status", "status": "PUBLISH_OK", "id": command["id"]})
        await peer.message(subject, 1, content="noon")
        assert (await peer.hear("unsubscribe"))["subjects"] == [subject]
        assert replies[0].content == "noon"
        nursery.start_soon(it.reply, Message("/q/1", "?", reply_subject="/replies/1/1"), "!")
        command = await peer.hear("publish")
        assert (command["subject"], command["retained"], command["qos"]) == (
            "/replies/1/1",
            False,
            "STANDARD",
        )
        await peer.say({"op": "status", "status": "PUBLISH_OK", "id": command["id"]})
        with pytest.raises(ValueError, match="no reply"):
            await it.reply(Message("/q/1", "?"), "!")
        with pytest.raises(TimeoutError, match="no reply"):
            await it.request("/service/time", "now?", timeout_s=0.05)
        peer.done.set()
        await peer.close(4101)


async def test_compressed_content(scripted: Any) -> None:
    async with client(scripted, publisher=None) as it, it.subscribe("/a/b") as subscription:
        peer = await scripted.accept()
        await peer.greet()
        await it.submit("/a/b", "long " * 1000, compressed=True)
        command = await peer.hear("publish")
        assert command["compressed"] is True
        assert len(command["content_base64"]) < 200
        zipped = {"content": None, "compressed": True}
        await peer.message("/a/b", 1, content_base64=command["content_base64"], **zipped)
        assert (await take(subscription)).content == "long " * 1000
        await peer.message("/a/b", 2, content_base64="AAAA", **zipped)
        assert (await take(subscription)).content == b"\0\0\0", "not in the zlib format"
        peer.done.set()
        await peer.close(4101)


async def test_the_setters_of_the_schedule(scripted: Any) -> None:
    async with client(scripted) as it:
        it.notify_after_failed_connection_attempts(2)
        it.notify_when_reconnect_rate_exceeds_threshold(3)
        it.set_quick_reconnect_max_retries(1)
        it.set_quick_reconnect_initial_delay(0.01)
        it.set_reconnect_policy(ReconnectPolicy.CONSTANT_WINDOW_BACKOFF)
        it.set_reconnect_time_interval(0.01)
        it.set_reconnect_max_delay(1)
        for _ in range(5):
            peer = await scripted.accept()
            await peer.greet()
            await peer.close(1011)
            peer.done.set()
        it.set_servers([scripted.address])
        (await scripted.accept()).done.set()
        assert await statuses(it, 2) == ["SERVER_UP", "RECONNECT_RATE_EXCEEDED"]


async def test_disconnect_and_connect(scripted: Any) -> None:
    async with client(scripted) as it:
        it.subscribe("/a/b")
        peer = await scripted.accept()
        await peer.greet()
        it.disconnect()
        await peer.closed()
        peer.done.set()
        it.connect()
        peer = await scripted.accept()
        await peer.greet()
        assert (await peer.hear("subscribe"))["subjects"] == ["/a/b"]
        peer.done.set()


async def test_a_silent_server_is_left(scripted: Any, at_once: ReconnectSettings) -> None:
    async with client(scripted, reconnect=at_once) as it:
        peer = await scripted.accept()
        await peer.greet(keepalive_ms=50)
        await peer.hear("ping")
        again = await scripted.accept()
        await again.greet()
        assert await statuses(it, 3) == ["SERVER_UP", "SERVER_DOWN", "SERVER_UP"]
        peer.done.set()
        again.done.set()


@pytest.mark.parametrize("answer", [None, b"", b"HTTP/1.1 101 Switching"])
async def test_a_server_that_closes_instead_of_an_upgrade_is_left_at_once(
    answer: bytes | None, at_once: ReconnectSettings
) -> None:
    calls: list[trio.SocketStream] = []
    third = trio.Event()

    async def serve(stream: trio.SocketStream) -> None:
        async with stream:
            calls.append(stream)
            if len(calls) == 3:
                third.set()
            if answer is not None:
                await stream.receive_some()
                await stream.send_all(answer)

    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, serve, [listener])
        # One attempt alone may take ten seconds where the server says nothing and stays.
        with trio.fail_after(9):
            address = f"ws://127.0.0.1:{listener.socket.getsockname()[1]}"
            async with Client([address], reconnect=at_once) as it:
                assert (await take(it.statuses)).status is Notification.SERVER_DOWN
                await third.wait()
        nursery.cancel_scope.cancel()


async def test_a_ping_that_crosses_the_farewell_is_no_error() -> None:
    heard = trio.Event()

    async def serve(stream: trio.SocketStream) -> None:
        connection = WSConnection(ConnectionType.SERVER)
        while True:
            connection.receive_data(bytes(await stream.receive_some()) or None)
            for event in connection.events():
                if isinstance(event, Request):
                    accept = AcceptConnection(subprotocol=event.subprotocols[0])
                    await stream.send_all(connection.send(accept))
                elif isinstance(event, BytesMessage):
                    heard.set()
                elif isinstance(event, CloseConnection):
                    ping = b"\x89\x00"  # RFC 6455, 5.5.2: it was under way already
                    await stream.send_all(ping + connection.send(event.response()))
                    return

    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, serve, [listener])
        with trio.fail_after(20):
            async with Client([f"ws://127.0.0.1:{listener.socket.getsockname()[1]}"]):
                await heard.wait()
        nursery.cancel_scope.cancel()


def test_a_bomb_is_not_inflated() -> None:
    bomb = zlib.compress(bytes(20 * 1024 * 1024))
    assert inflated(bomb) == bomb


async def test_bad_addresses_are_told_at_once() -> None:
    with pytest.raises(ValueError, match="weight"):
        Client(["heavy a:1"])
