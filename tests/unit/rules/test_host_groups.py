"""The group of a host is the nearest domain that has a limit."""

import pytest

from shared.rules.host_groups import group_of

LIMITED = {"shop.example", "deep.in.shop.example", "192.0.2.1", "[2001:db8::1]"}


@pytest.mark.parametrize(
    ("host", "group"),
    [
        ("shop.example", "shop.example"),
        ("www.shop.example", "shop.example"),
        ("a.b.shop.example:8080", "shop.example"),
        ("shop.example:8080", "shop.example"),
        ("bookshop.example", None),
        ("example", None),
        ("in.shop.example", "shop.example"),
        ("deep.in.shop.example", "deep.in.shop.example"),
        ("x.deep.in.shop.example", "deep.in.shop.example"),
        ("192.0.2.1:81", "192.0.2.1"),
        ("[2001:db8::1]", "[2001:db8::1]"),
        ("[2001:db8::1]:81", "[2001:db8::1]"),
        ("[2001:db8::2]", None),
    ],
)
def test_a_host_is_of_the_nearest_domain(host, group):
    assert group_of(host, LIMITED) == group
    assert group_of(host, ()) is None
