"""The authorities whose certificates this machine trusts, made known to PostgreSQL's client.

The client that comes with psycopg has an OpenSSL of its own, which looks for them in a folder that
no machine has: with `sslrootcert=system` it would trust nobody. Python knows where they are.
"""

import os
import ssl
from typing import Final

_VARIABLES: Final = ("SSL_CERT_FILE", "SSL_CERT_DIR")
"""What each OpenSSL of a process goes by, where they are set."""


def trust_as_the_machine_does() -> None:
    """Say by the environment where the machine's authorities are, unless it says so already.

    Before the first connection, and for the processes that this one starts as well.
    """
    if any(os.environ.get(name) for name in _VARIABLES):
        return
    known = ssl.get_default_verify_paths()
    for name, path in zip(_VARIABLES, (known.cafile, known.capath), strict=True):
        if path is not None:
            os.environ[name] = path
