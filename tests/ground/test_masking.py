"""What of a secret a text may show."""

from __future__ import annotations

import html
import json
import time
from collections.abc import Callable
from urllib.parse import quote, quote_plus

import pytest
from fastkcl.checks import check_endpoint, check_sendable
from fastkcl.masking import remember, remember_lasting, remember_properties, remember_url, without_sent, without_users


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("at http://user:SECRET@host:1/x: away", "at http://…@host:1/x: away"),
        ("http://user:a/SECRET@host", "http://…@host"),
        ("user:SECRET@host", "…@host"),
        ("https://h/?token=SECRET&n=1", "https://h/?token=…&n=1"),
        ("abfss://c@a.net/t?sv=1&sig=SECRET", "abfss://…@a.net/t?sv=1&sig=…"),
        ("https://h/?X-Amz-Signature=SECRET", "https://h/?X-Amz-Signature=…"),
        ("https://h/#SECRET: no such thing", "https://h/#… no such thing"),
        ("https://h/a#access_token=SECRET", "https://h/a#…"),
        ("at ://a/b c:d, 'http://u:p w@SECRET@h'", "at ://a/b c:d, 'http://…@h'"),
        ("u:SECRET@h, x@y:SECRET@z:SECRET@h", "…@h, …@h"),
        ("issue #7 of https://h/a, and a#b", "issue #7 of https://h/a, and a#b"),
    ],
)
def test_urls(text: str, shown: str) -> None:
    assert without_users(text) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Authorization: Bearer SECRET\nHost: h", "Authorization: …\nHost: h"),
        ('{"Authorization": "Basic SECRET=", "Host": "h"}', '{"Authorization": "…", "Host": "h"}'),
        (r'"no {\"Authorization\": \"Bearer SEC\/SECRET\"}"', r'"no {\"Authorization\": \"…\"}"'),
        ("[('authorization', 'Bearer SECRET')]", "[('authorization', '…')]"),
        ("Authorization&quot;: &quot;Bearer SECRET&quot;", "Authorization&quot;: &quot;…&quot;"),
        ("Authorization=AWS4-HMAC-SHA256 Credential=SECRET/x, Signature=SECRET", "Authorization=…"),
        (r"Authorization: Basic SE\\/SECRET", "Authorization: …"),
        ("Credential=x, Signature=0123456789abcdefSECRET"[:-6], "Credential=x, Signature=…"),
        ("x-amz-security-token:SECRET\nx-amz-target:a", "x-amz-security-token:…\nx-amz-target:a"),
        ("SignedHeaders=host;x-amz-security-token, Signature", "SignedHeaders=host;x-amz-security-token, Signature"),
        ('{"name": "Authorization", "value": "Bearer SECRET"}', '{"name": "Authorization", "…": "Bearer …"}'),
        ("the token LONGSECRET is not known", "the token … is not known"),
        ("a bearer token is missing, or basic authentication", "a bearer token is missing, or basic authentication"),
    ],
)
def test_what_a_server_repeats(text: str, shown: str) -> None:
    assert without_sent(text, "LONGSECRET", "the") == shown


@pytest.mark.parametrize(
    "form",
    [
        "/aB+c/dE=xyz",
        r"\/aB+c\/dE=xyz",
        r"\\/aB+c\\/dE=xyz",
        r"\u002faB\u002Bc\u002FdE\u003dxyz",
        "%2FaB%2Bc%2FdE%3Dxyz",
        "%252FaB%252Bc%252FdE%253Dxyz",
        "&#047;aB&#x2b;c&#47;dE&#61;xyz",
        "/aB c/dE=xyz",
    ],
)
def test_a_secret_in_any_form(form: str) -> None:
    assert "aB" not in without_sent(f'"X": ["{form}"]', "/aB+c/dE=xyz")
    assert "aB" not in without_sent(f'"\u0130": ["{form}"]', "/aB+c/dE=xyz"), "in lower case that letter is two"


def test_a_number_that_is_no_character() -> None:
    text = f"&#{'0' * 5000}65;"
    assert without_sent(text, "/aB+c/dE=xyz") == text


@pytest.mark.parametrize(
    "quoted",
    [
        lambda text: json.dumps(text)[1:-1],
        lambda text: json.dumps(text)[1:-1].replace("/", r"\/"),
        lambda text: json.dumps(text, ensure_ascii=False)[1:-1].replace("&", r"\u0026").replace("<", r"\u003C"),
        lambda text: json.dumps(json.dumps(text)),
        lambda text: "".join(rf"\u{ord(each):04x}" if each not in "A|B" else each for each in text),
        ascii,
        html.escape,
        lambda text: html.escape(text).replace("&quot;", "&#x22;").replace("&lt;", "&#060;"),
        lambda text: json.dumps(html.escape(text)).replace("&", r"\u0026"),
        lambda text: html.escape(json.dumps(text)),
        lambda text: quote(text, safe="|"),
        lambda text: quote(quote_plus(text, safe="|"), safe="|"),
        str,
    ],
)
def test_a_password_in_any_form(quoted: Callable[[str], str]) -> None:
    password = r"""pa"ss<wo>rd&amp;'SECRET%41\u0041@é x/y+z="""
    shown = without_sent(f"no user [{quoted(f'A{password}B')}] here", password)
    assert shown == f"no user [{quoted('A|B').replace('|', '…')}] here"


@pytest.mark.parametrize("form", [str, lambda text: quote(text, safe=""), html.escape])
def test_a_secret_that_was_cut_is_masked_as_far_as_it_goes(form: Callable[[str], str]) -> None:
    secret = "/SECRET&SECRET=" * 3
    text = f"no {form(secret)}"
    for end in range(3 + len(form(secret[:8])), len(text)):
        assert without_sent(text[:end], secret) == "no …"


def test_what_is_remembered() -> None:
    remember_lasting("LASTING-SECRET")
    for number in range(1_000):
        remember(f"RENEWED-{number:05}")
    remember_url("postgresql://me:PASSWORD%2FOFURL@db/x?sslpassword=PARAMETER")
    remember_url("https://me:URL-BEFORE-A-PATH@proxy/~a@b?c@d")
    remember_url("sc://host:15002/;user_id=somebody;token=CONNECT-TOKEN")
    remember_properties(
        {
            "uri": "https://me:PROPERTY-URL@host",
            "credential": "client-id:CLIENT-SECRET",
            "header.Authorization": "Bearer HEADER-TOKEN",
            "header.X-Iceberg-Access-Delegation": "vended-credentials",
            "auth": {"basic": {"username": "somebody", "password": "NESTED-SECRET"}},
            "warehouse": "s3://warehouse",
        }
    )
    known = ["LASTING-SECRET", "RENEWED-00999", "PASSWORD/OFURL", "PARAMETER", "CONNECT-TOKEN", "PROPERTY-URL"]
    for each in (*known, "URL-BEFORE-A-PATH", "CLIENT-SECRET", "HEADER-TOKEN", "NESTED-SECRET", "bWU6UFJPUEVSVFktVVJM"):
        assert without_sent(f"no {each}.") == "no …."
    for each in ("somebody", "vended-credentials", "s3://warehouse", "client-id"):
        assert without_sent(f"no {each}.") == f"no {each}."


def test_the_password_of_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://me:PROXY-SECRET@proxy:3128")
    assert without_sent("no PROXY-SECRET here, nor bWU6UFJPWFktU0VDUkVU") == "no … here, nor …"


@pytest.mark.parametrize("mark", ["=", "%3D", r"\u003d", "&#61;", '": "', '="'])
def test_a_signature(mark: str) -> None:
    assert "0123456789abcdef" not in without_sent(f"X-Amz-Signature{mark}0123456789abcdef00")


@pytest.mark.parametrize(
    "part",
    [
        "authorization ",
        "authorization: ",
        "authorization:" + "\\" * 65_000,
        "\\",
        "/",
        "signature=",
        "basic ",
        "://",
        "://'",
        ":// ",
        "a#",
        "a:",
        "a",
        "u:p@",
        "x-amz-security-token\\",
        "%25",
        "&amp;",
        "&",
        r"\u005c",
        "%5C%75",
    ],
)
@pytest.mark.parametrize(
    "secret", ["/SECRET/SECRET=", r"\/abcdefg", "\\" * 8 + "/", "%25" * 4, "&amp;" * 4, "a" * 2_000]
)
def test_a_long_text_takes_little_time(part: str, secret: str) -> None:
    begun = time.thread_time()
    text = part * (65_536 // len(part))
    for each in (text, f"{text} @", f"{text}'@"):
        without_sent(each, secret)
        without_users(each)
    assert time.thread_time() - begun < 1


@pytest.mark.parametrize("value", ["SECRET\n", "SEC\r\nX: RET", "SEC\x7fRET", "SEC\x85RET"])
def test_what_no_request_carries_is_named_without_its_value(value: str) -> None:
    with pytest.raises(ValueError, match="^THE_NAME has a line feed or another control character") as raised:
        check_sendable("THE_NAME", value)
    assert "SEC" not in str(raised.value)
    check_sendable("THE_NAME", "p\xe4ss word")
    with pytest.raises(ValueError, match="^THE_NAME has a character that is not ASCII"):
        check_sendable("THE_NAME", "p\xe4ss word", is_header=True)


@pytest.mark.parametrize(
    "url", ["http://u:S/SECRET@h", "http://h:SECRET", "h:1", "ftp://h", "http://[SECRET", "http://h /"]
)
def test_what_is_no_endpoint_is_not_shown(url: str) -> None:
    with pytest.raises(ValueError, match="^THE_NAME is not a URL") as raised:
        check_endpoint("THE_NAME", url)
    assert "SECRET" not in str(raised.value)
