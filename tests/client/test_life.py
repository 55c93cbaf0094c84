"""The life of a client: what it takes and refuses as it is made, open and left."""

from typing import get_args

import anyio
import pytest

from mdserver.client import Client, ConnectError, NotOpenError
from mdserver.client.core import values

NOWHERE = ["127.0.0.1:1"]
PATIENCE_S = 60
OF_THE_DRIVER = {
    values.OpenTransport,
    values.Transmit,
    values.CloseTransport,
    values.SetTimer,
    values.CancelTimer,
}


def test_every_output_that_is_not_the_driver_s_has_a_taker() -> None:
    takers = Client(NOWHERE)._life._takers
    assert takers.keys() | OF_THE_DRIVER == set(get_args(values.Output))
    assert takers.keys().isdisjoint(OF_THE_DRIVER)


async def test_a_client_is_made_then_open_then_left() -> None:
    client = Client(NOWHERE, connect_timeout_s=0.1)
    subscription = client.subscribe("/a/b")
    with pytest.raises(NotOpenError, match="enter the client first"):
        await client.publish("/a/b", "x")
    with anyio.fail_after(PATIENCE_S):
        async with client:
            for _ in range(2):
                with pytest.raises(ConnectError, match="no server was reached"):
                    await client.connected()
                with pytest.raises(ConnectError, match="no server was reached"):
                    await anext(subscription)
                client.connect()  # the time begins again
        assert [message async for message in subscription] == []
    with pytest.raises(NotOpenError, match="was left"):
        await client.publish("/a/b", "x")
    with pytest.raises(NotOpenError, match="entered once"):
        await client.__aenter__()


async def test_a_task_that_fails_ends_all_that_waits_until_the_client_is_left() -> None:
    client = Client(NOWHERE)
    async with client:
        subscription = client.subscribe("/a/b")
        client._life._failed(RuntimeError("a bug"))
        for call in (client.connected, subscription.__anext__):
            with pytest.raises(NotOpenError, match="an error of its own"):
                await call()
        with pytest.raises(NotOpenError, match="an error of its own"):
            client.connect()
