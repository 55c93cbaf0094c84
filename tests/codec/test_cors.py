"""Which pages may use the HTTP paths."""

import pytest

from mdserver.codec.cors import WebRule, is_preflight
from mdserver.codec.http import Request, RequestRefusedError

PAGE = b"https://www.Example.com"
ALLOWED = WebRule(frozenset(["https://www.example.com"]))


def request(method: str = "GET", **headers: bytes) -> Request:
    named = [(name.replace("_", "-").encode(), value) for name, value in headers.items()]
    return Request(method, "/sse", named)


def test_a_request_of_no_page_is_allowed() -> None:
    assert ALLOWED.check_origin(request()) == ()


def test_an_allowed_page_may_read_the_answer() -> None:
    headers = dict(ALLOWED.check_origin(request(origin=PAGE)))
    assert headers == {b"access-control-allow-origin": PAGE, b"vary": b"origin"}
    assert dict(WebRule().check_origin(request(origin=PAGE))) == {
        b"access-control-allow-origin": b"*"
    }


def test_another_page_is_refused() -> None:
    with pytest.raises(RequestRefusedError, match=r"evil\.example") as caught:
        ALLOWED.check_origin(request(origin=b"https://evil.example"))
    assert caught.value.status == 403


@pytest.mark.parametrize("origin", [b"http://127.0.0.1:4000", b"https://127.0.0.1:4000"])
def test_own_pages(origin: bytes) -> None:
    rule = WebRule(frozenset(), own_pages=True)
    assert rule.check_origin(request(origin=origin, host=b"127.0.0.1:4000"))
    for host in (b"127.0.0.1:4001", b"127.0.0.1", b""):
        with pytest.raises(RequestRefusedError):
            rule.check_origin(request(origin=origin, host=host))
    with pytest.raises(RequestRefusedError):
        rule.check_origin(request(origin=b"null", host=b""))


@pytest.mark.parametrize(
    ("method", "site", "mode", "dest"),
    [
        ("GET", b"cross-site", b"no-cors", b"image"),
        ("GET", b"same-site", b"no-cors", b"image"),
        ("GET", b"cross-site", b"navigate", b"iframe"),
        ("GET", b"cross-site", b"no-cors", b"document"),
        ("POST", b"cross-site", b"navigate", b"document"),
        ("HEAD", b"same-site", b"cors", b"empty"),
    ],
)
def test_own_pages_alone_load_pictures_and_frames(
    method: str, site: bytes, mode: bytes, dest: bytes
) -> None:
    told = request(method, sec_fetch_site=site, sec_fetch_mode=mode, sec_fetch_dest=dest)
    with pytest.raises(RequestRefusedError, match="other sites") as caught:
        WebRule(frozenset(), own_pages=True).check_origin(told)
    assert caught.value.status == 403
    assert WebRule(frozenset()).check_origin(told) == ()


@pytest.mark.parametrize(
    ("site", "mode", "dest"),
    [
        (b"none", b"navigate", b"document"),
        (b"same-origin", b"cors", b"empty"),
        (b"cross-site", b"navigate", b"document"),
    ],
)
def test_a_user_may_follow_a_link_to_own_pages(site: bytes, mode: bytes, dest: bytes) -> None:
    told = request(sec_fetch_site=site, sec_fetch_mode=mode, sec_fetch_dest=dest)
    assert WebRule(frozenset(), own_pages=True).check_origin(told) == ()


@pytest.mark.parametrize(
    "host",
    [
        b"localhost",
        b"localhost.:80",
        b"a.localhost:1",
        b"127.0.0.1:8800",
        b"[::1]:80",
        b"[::1]",
        b"192.0.2.1",
        b"md.example:443",
    ],
)
def test_names_of_the_server(host: bytes) -> None:
    assert WebRule(hosts=frozenset({"md.example"})).check_host(request(host=host)) is None


@pytest.mark.parametrize(
    "host",
    [b"evil.example", b"evil.example:8800", b"127.0.0.1.evil.example", b"", b"a:b:c", b"[::1"],
)
def test_other_names_are_refused(host: bytes) -> None:
    with pytest.raises(RequestRefusedError, match="AllowedHosts") as caught:
        WebRule(hosts=frozenset({"md.example"})).check_host(request(host=host))
    assert caught.value.status == 421
    WebRule().check_host(request(host=host))


def test_preflights_are_told_from_other_options() -> None:
    assert is_preflight(request("OPTIONS", access_control_request_method=b"POST"))
    assert not is_preflight(request("OPTIONS"))
    assert not is_preflight(request("POST", access_control_request_method=b"POST"))
