"""Which pages may use the HTTP paths."""

import pytest

from mdserver.codec.cors import check_origin, is_preflight
from mdserver.codec.http import Request, RequestRefusedError

PAGE = b"https://www.Example.com"
ALLOWED = frozenset(["https://www.example.com"])


def request(method: str = "GET", **headers: bytes) -> Request:
    named = [(name.replace("_", "-").encode(), value) for name, value in headers.items()]
    return Request(method, "/sse", named)


def test_a_request_of_no_page_is_allowed() -> None:
    assert check_origin(request(), ALLOWED) == ()


def test_an_allowed_page_may_read_the_answer() -> None:
    headers = dict(check_origin(request(origin=PAGE), ALLOWED))
    assert headers == {b"access-control-allow-origin": PAGE, b"vary": b"origin"}
    assert dict(check_origin(request(origin=PAGE), None)) == {b"access-control-allow-origin": b"*"}


def test_another_page_is_refused() -> None:
    with pytest.raises(RequestRefusedError, match=r"evil\.example") as caught:
        check_origin(request(origin=b"https://evil.example"), ALLOWED)
    assert caught.value.status == 403


def test_preflights_are_told_from_other_options() -> None:
    assert is_preflight(request("OPTIONS", access_control_request_method=b"POST"))
    assert not is_preflight(request("OPTIONS"))
    assert not is_preflight(request("POST", access_control_request_method=b"POST"))
