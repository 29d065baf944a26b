"""The servers of a system: one broker and one PostgreSQL, or what a careful operator deploys.

Everybody comes to them through proxies, which can fail: workers, and the servers themselves where
they are each other's clients. The verification's own clients reach PostgreSQL past them.
"""

import os
import pwd
from collections.abc import Iterable
from pathlib import Path
from typing import Final, Protocol

from deploy.local.apache import ApacheKafka
from deploy.local.apache_cluster import REPLICAS, ApacheCluster
from deploy.local.kafka import KafkaProcess, LocalBroker
from deploy.local.postgres import EmbeddedPostgres
from deploy.local.postgres_pair import PostgresPair
from deploy.local.process import free_port
from services.verify.disks import Disk
from services.verify.network import Network
from services.verify.plan import DISKS, VerifyPlan

LOOPBACK: Final = "127.0.0.1"
SOCKET: Final = ".s.PGSQL.5432"


class Servers(Protocol):
    """Kafka and PostgreSQL, as a system sees them."""

    brokers: tuple[str, ...]
    """Their names, as those of links have them."""
    databases: tuple[str, ...]
    replicas: int
    """Of each topic."""

    @property
    def proxied_brokers(self) -> str:
        """Where workers find Kafka."""

    @property
    def bootstrap_servers(self) -> str:
        """Where everybody else finds it."""

    @property
    def leading(self) -> EmbeddedPostgres:
        """The PostgreSQL that takes writes."""

    def database_uri(self, name: str) -> str:
        """A database, past the proxies."""

    async def open(self, network: Network) -> None:
        """Open the proxies before the servers."""

    async def open_for(self, network: Network, instance: str, folder: Path) -> str:
        """Open the proxies before PostgreSQL for one worker, in a folder of its own.

        Returns:
            where it finds PostgreSQL; the database's name is left open, as `{}`.
        """

    def start(self) -> None:
        """Start all; raises StartError."""

    def stop(self) -> None:
        """Stop all, in whatever state they are."""


class OneOfEach:
    """One broker and one PostgreSQL."""

    brokers: tuple[str, ...] = ("kafka",)
    databases: tuple[str, ...] = ("postgres",)
    replicas = 1

    def __init__(self, plan: VerifyPlan, directory: Path) -> None:
        self._proxy_port = free_port()
        make = ApacheKafka if plan.broker == "apache" else LocalBroker
        self.broker: KafkaProcess = make(directory / "kafka", advertised_port=self._proxy_port)
        self.postgres = EmbeddedPostgres(directory / "postgres")

    @property
    def proxied_brokers(self) -> str:
        """Where workers find Kafka."""
        return f"{LOOPBACK}:{self._proxy_port}"

    @property
    def bootstrap_servers(self) -> str:
        """Where everybody else finds it."""
        return self.broker.bootstrap_servers

    @property
    def leading(self) -> EmbeddedPostgres:
        """The only PostgreSQL."""
        return self.postgres

    def database_uri(self, name: str) -> str:
        """A database, past the proxies."""
        return self.postgres.database_uri(name)

    async def open(self, network: Network) -> None:
        """Open the proxy before the broker."""
        port = int(self.broker.bootstrap_servers.rpartition(":")[2])
        await network.open_kafka(self._proxy_port, port)

    async def open_for(self, network: Network, instance: str, folder: Path) -> str:
        """Open the proxy before PostgreSQL for one worker."""
        await network.open_postgres(instance, folder, self.postgres.socket_directory / SOCKET)
        return f"postgresql://postgres@/{{}}?host={folder}"

    def start(self) -> None:
        """Start both; raises StartError."""
        self.postgres.start()
        self.broker.start()

    def stop(self) -> None:
        """Stop both."""
        self.broker.kill()
        self.postgres.stop()


class Cluster:
    """Three nodes of Apache Kafka, and PostgreSQL with a standby that commits wait for."""

    replicas = REPLICAS

    def __init__(self, plan: VerifyPlan, directory: Path, sockets: Path) -> None:
        self.kafka = ApacheCluster(directory / "kafka")
        self._seen = sockets / "between"
        self.pair = PostgresPair(directory / "postgres", lambda name: self._seen / name)
        self.brokers = tuple(f"kafka-{number}" for number in self.kafka.nodes)
        self.databases = tuple(f"postgres-{name}" for name in self.pair.servers)
        self.disks: dict[str, Disk] = {}
        """By name of the server; none where no fault needs them."""
        if not DISKS.isdisjoint(plan.faults):
            nodes = {f"kafka-{n}": node.data_dir for n, node in self.kafka.nodes.items()}
            servers = {f"postgres-{n}": one.data_dir for n, one in self.pair.servers.items()}
            self.disks = {name: Disk(folder) for name, folder in (nodes | servers).items()}
        self._kept = directory / "disks" if plan.keep is not None else None

    @property
    def proxied_brokers(self) -> str:
        """Where everybody finds Kafka."""
        return self.kafka.bootstrap_servers

    bootstrap_servers = proxied_brokers

    @property
    def leading(self) -> EmbeddedPostgres:
        """The primary."""
        return self.pair.leading

    def database_uri(self, name: str) -> str:
        """A database, past the proxies, wherever it takes writes."""
        folders = (str(server.socket_directory) for server in self.pair.servers.values())
        return _anywhere(folders).format(name)

    async def open(self, network: Network) -> None:
        """Open the proxies before all servers, also for one another."""
        await open_nodes(network, self.kafka)
        self._seen.mkdir()
        self._seen.parent.chmod(0o711)
        for name, server in self.pair.servers.items():
            (other,) = self.pair.servers.keys() - {name}
            folder = self._seen / name
            folder.mkdir()
            own = server.socket_directory / SOCKET
            await network.open_postgres(f"postgres-{other}", folder, own, f"postgres-{name}")
            if server.user is not None:
                account = pwd.getpwnam(server.user)
                os.chown(folder / SOCKET, account.pw_uid, account.pw_gid)

    async def open_for(self, network: Network, instance: str, folder: Path) -> str:
        """Open the proxies before both PostgreSQL servers for one worker."""
        folders = []
        for name, server in self.pair.servers.items():
            within = folder / name
            within.mkdir()
            own = server.socket_directory / SOCKET
            await network.open_postgres(instance, within, own, f"postgres-{name}")
            folders.append(str(within))
        return _anywhere(folders)

    def start(self) -> None:
        """Start all; raises StartError."""
        for disk in self.disks.values():
            disk.mount()
        self.pair.start()
        self.pair.follow()
        self.kafka.start()

    def stop(self) -> None:
        """Stop all."""
        for number in self.kafka.nodes:
            self.kafka.resume(number)
        self.kafka.kill()
        self.pair.stop()
        if self._kept is not None:
            for name, disk in self.disks.items():
                disk.copy_to(self._kept / name)


async def open_nodes(network: Network, cluster: ApacheCluster) -> None:
    """Open the proxies before all nodes of a cluster, for clients and for one another."""
    for number, node in cluster.nodes.items():
        seen = cluster.seen[number]
        ways = (seen.client, seen.internal, seen.controller)
        for port, behind in zip(ways, node.ports, strict=True):
            await network.open_kafka(port, behind, f"kafka-{number}")


def _anywhere(folders: Iterable[str]) -> str:
    """A database on whichever of some servers takes writes; its name is left open."""
    return f"postgresql://postgres@/{{}}?host={','.join(folders)}&target_session_attrs=read-write"
