"""Which hosts are of one site, whose pages resemble one another."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def site_of(host: str) -> str:
    """The last two labels of a host, which pool its subdomains; addresses stand for themselves."""
    if host.startswith("["):
        return host
    labels = host.rsplit(":", 1)[0].split(".")
    if labels[-1].isdigit():
        return host
    return ".".join(labels[-2:])


def sites_of(hosts: Sequence[str]) -> NDArray[np.int64]:
    """A number for the site of each host."""
    numbers: dict[str, int] = {}
    sites = [numbers.setdefault(site_of(host), len(numbers)) for host in hosts]
    return np.array(sites, np.int64)
