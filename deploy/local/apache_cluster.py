"""Three nodes of Apache Kafka on this machine: what one of them has acknowledged, two have.

Each node is broker and controller. Where proxies stand before the nodes, everybody comes in
through them: clients, the other brokers and the other controllers.
"""

import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from deploy.local.apache import ApacheKafka, new_cluster_id
from deploy.local.process import free_port

NODES: Final = 3
REPLICAS: Final = 3
LEAST_IN_SYNC: Final = 2

_LOOPBACK: Final = "127.0.0.1"

_SETTINGS: Final = """\
node.id={number}
controller.quorum.voters={voters}
listeners=PLAINTEXT://127.0.0.1:{port},INTERNAL://127.0.0.1:{internal_port},\
CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{seen.client},INTERNAL://127.0.0.1:{seen.internal}
listener.security.protocol.map=CONTROLLER:PLAINTEXT,INTERNAL:PLAINTEXT,PLAINTEXT:PLAINTEXT
inter.broker.listener.name=INTERNAL
default.replication.factor={replicas}
min.insync.replicas={least}
unclean.leader.election.enable=false
offsets.topic.num.partitions=3
offsets.topic.replication.factor={replicas}
transaction.state.log.num.partitions=3
transaction.state.log.replication.factor={replicas}
transaction.state.log.min.isr={least}
share.coordinator.state.topic.replication.factor={replicas}
share.coordinator.state.topic.min.isr={least}
replica.lag.time.max.ms=4000
replica.socket.timeout.ms=4000
broker.session.timeout.ms=4000
controller.quorum.election.timeout.ms=1000
controller.quorum.fetch.timeout.ms=2000
controller.quorum.request.timeout.ms=2000
leader.imbalance.check.interval.seconds=10
leader.imbalance.per.broker.percentage=5
"""
"""Out of step after four seconds, and led by another one; as Kafka itself, but sooner."""


@dataclass(frozen=True, slots=True)
class Seen:
    """The ports of a node as others see them: its own, or those of proxies."""

    client: int
    internal: int
    controller: int


@dataclass(frozen=True, slots=True)
class Member:
    """A node's place in the cluster."""

    cluster_id: str
    number: int
    all_seen: Mapping[int, Seen]
    """By number of the node."""

    def settings(self, port: int, internal_port: int, controller_port: int) -> str:
        """Lines of server.properties."""
        voters = (f"{n}@{_LOOPBACK}:{seen.controller}" for n, seen in self.all_seen.items())
        return _SETTINGS.format(
            number=self.number,
            voters=",".join(voters),
            port=port,
            internal_port=internal_port,
            controller_port=controller_port,
            seen=self.all_seen[self.number],
            replicas=REPLICAS,
            least=LEAST_IN_SYNC,
        )


class ApacheCluster:
    """Three nodes under `data_dir`; proxies are to listen on `seen` of each."""

    def __init__(self, data_dir: Path) -> None:
        cluster_id = new_cluster_id()
        numbers = range(1, NODES + 1)
        self.seen = {n: Seen(free_port(), free_port(), free_port()) for n in numbers}
        self.nodes = {
            n: ApacheKafka(data_dir / f"node-{n}", membership=Member(cluster_id, n, self.seen))
            for n in numbers
        }

    @property
    def bootstrap_servers(self) -> str:
        """Addresses for clients, through the proxies; the same after every start."""
        return ",".join(f"{_LOOPBACK}:{seen.client}" for seen in self.seen.values())

    def start(self, numbers: Sequence[int] = ()) -> None:
        """Start nodes, and wait until they answer.

        Args:
            numbers: of those that are not running; empty: all.

        Raises ApacheKafkaUnavailableError, StartError.
        """
        chosen = [self.nodes[n] for n in numbers or self.nodes]
        for node in chosen:
            node.launch()
        for node in chosen:
            node.wait()

    def pause(self, number: int) -> None:
        """Freeze a node; one that is not running is no error."""
        self._signal(number, signal.SIGSTOP)

    def resume(self, number: int) -> None:
        """Let a frozen node go on."""
        self._signal(number, signal.SIGCONT)

    def _signal(self, number: int, what: int) -> None:
        pid = self.nodes[number].process_id
        if pid is not None:
            os.kill(pid, what)

    def stop(self) -> None:
        """Stop all nodes in order; data stays."""
        for node in self.nodes.values():
            node.stop()

    def kill(self) -> None:
        """Kill all nodes as a crash would."""
        for node in self.nodes.values():
            node.kill()
