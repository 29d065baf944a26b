"""A certificate authority of the tests' own, and certificates of servers on this machine."""

import subprocess
from pathlib import Path

DAYS = "2"


class Authority:
    """A self-made certificate authority with its files in one folder."""

    def __init__(self, folder: Path, name: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self.certificate = folder / "ca.pem"
        self._key = folder / "ca.key"
        _openssl(
            "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", DAYS,
            "-subj", f"/CN={name}", "-keyout", self._key, "-out", self.certificate,
        )  # fmt: skip

    def issue(self, name: str, names: str = "DNS:localhost,IP:127.0.0.1") -> tuple[Path, Path]:
        """A certificate and its private key (PKCS 8), signed by this authority.

        Args:
            name: common name, and of the files.
            names: subject alternative names, as openssl writes them.
        """
        request, key = self._folder / f"{name}.csr", self._folder / f"{name}.key"
        certificate, extensions = self._folder / f"{name}.pem", self._folder / f"{name}.ext"
        extensions.write_text(f"subjectAltName={names}\n")
        _openssl(
            "req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}",
            "-keyout", key, "-out", request,
        )  # fmt: skip
        _openssl(
            "x509", "-req", "-in", request, "-CA", self.certificate, "-CAkey", self._key,
            "-CAcreateserial", "-days", DAYS, "-extfile", extensions, "-out", certificate,
        )  # fmt: skip
        return certificate, key


def _openssl(*arguments: object) -> None:
    command = ["openssl", *(str(argument) for argument in arguments)]
    subprocess.run(command, check=True, capture_output=True, stdin=subprocess.DEVNULL)
