"""Makes a Scrapy spider a member of Freshet's crawler fleet.

`ADDONS = {"scrapy_freshet.Addon": 100}` and `KAFKA_BOOTSTRAP_SERVERS` are all that it takes.
"""

from scrapy_freshet.addon import Addon

__all__ = ["Addon"]
