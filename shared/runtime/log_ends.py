"""Where a partition's log ends at its leader, whether the other brokers have copied it or not.

What a consumer is told is where all brokers that are in sync have come to: while one of them is
frozen, or just killed, a record that the leader has taken, and stamped, stays hidden for seconds.
Who must know of every record that was taken by some moment asks as the brokers ask one another.
"""

from typing import Final

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError, NodeNotReadyError, for_code
from aiokafka.protocol.offset import OffsetRequest, OffsetResetStrategy

from shared.runtime.aiokafka_patches import client_of

_NO_CONSUMER: Final = -3
"""Replica that asks: neither a consumer (-1), nor one that any broker may answer (-2)."""

_ANY_ISOLATION: Final = 0


async def end_of_log(consumer: AIOKafkaConsumer, partition: TopicPartition) -> int:
    """Offset after the last record that the leader has.

    Args:
        consumer: started; its connections are used.
        partition: asked for.

    Raises:
        KafkaError: the leader is not known, or does not answer; its place is asked for anew.
    """
    client = client_of(consumer)
    leader = client.cluster.leader_for_partition(partition)
    try:
        if leader is None or leader < 0:
            raise NodeNotReadyError(f"{partition.topic} {partition.partition} has no leader")
        question = [(partition.topic, [(partition.partition, OffsetResetStrategy.LATEST)])]
        answer = await client.send(leader, OffsetRequest(_NO_CONSUMER, _ANY_ISOLATION, question))
        [[_, [[_, error, _, offset]]]] = answer.topics
        if error:
            raise for_code(error)(partition)
    except KafkaError:
        client.add_topic(partition.topic)
        await client.force_metadata_update()
        raise
    return int(offset)
