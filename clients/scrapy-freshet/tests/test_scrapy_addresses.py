"""No crawler is led into its own network."""

import pytest
from scrapy_freshet.addresses import is_private_literal, is_public


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "10.1.2.3", "169.254.169.254", "192.168.0.1", "0.0.0.0", "100.64.0.1"),
        *("224.0.0.1", "[::1]", "fe80::1%eth0", "fd00::1", "::ffff:10.0.0.1", "::127.0.0.1"),
        *("64:ff9b::10.0.0.1", "2002:7f00:1::", "64:ff9b:1::10.0.0.1", "::ffff:0:10.0.0.1"),
        *("fec0::1", "3fff::1", "[5f00::1]"),
    ],
)
def test_addresses_of_ones_own_network_are_not_public(address):
    assert not is_public(address)
    assert is_private_literal(address)


@pytest.mark.parametrize("address", ["8.8.8.8", "[2606:4700::1111]", "64:ff9b::8.8.8.8"])
def test_addresses_of_the_internet_are(address):
    assert is_public(address)
    assert not is_private_literal(address)


def test_names_are_left_to_the_resolver():
    assert not is_private_literal("localhost")
    assert not is_public("localhost")
