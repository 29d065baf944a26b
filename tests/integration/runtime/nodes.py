"""Apache Kafka of three nodes, each behind proxies as `freshet verify` has them."""

import asyncio
from contextlib import asynccontextmanager

from deploy.local.apache_cluster import ApacheCluster
from services.verify.network import Network
from services.verify.servers import open_nodes


@asynccontextmanager
async def three_nodes(folder):
    cluster, network = ApacheCluster(folder), Network()
    try:
        await open_nodes(network, cluster)
        await asyncio.to_thread(cluster.start)
        yield cluster
    finally:
        for number in cluster.nodes:
            cluster.resume(number)
        await asyncio.to_thread(cluster.kill)
        await network.close()
