"""What `ADDONS` names: it puts the package's parts in their places."""

from scrapy.settings import BaseSettings

from scrapy_freshet.addresses import PublicResolver
from scrapy_freshet.downloader_middleware import OutcomeMiddleware
from scrapy_freshet.host_middleware import HostMiddleware
from scrapy_freshet.options import may_be_private
from scrapy_freshet.reloading import OnceAroundMiddleware
from scrapy_freshet.robots import DailyRobotsTxtMiddleware
from scrapy_freshet.spider_middleware import FleetMiddleware

_ROBOTS = "scrapy.downloadermiddlewares.robotstxt.RobotsTxtMiddleware"
_ROBOTS_PLACE = 100
_REFRESH = "scrapy.downloadermiddlewares.redirect.MetaRefreshMiddleware"
_REFRESH_PLACE = 580
_CLOSEST_TO_THE_ENGINE = 1
_CLOSEST_TO_THE_DOWNLOADER = 10_000
_REPLACED = (
    (_ROBOTS, _ROBOTS_PLACE, DailyRobotsTxtMiddleware),
    (_REFRESH, _REFRESH_PLACE, OnceAroundMiddleware),
)
"""Scrapy's own, where a project says nothing else of them."""


class Addon:
    """Makes the spiders of a project members of the fleet."""

    @classmethod
    def update_pre_crawler_settings(cls, settings: BaseSettings) -> None:
        """Let names lead to public addresses alone, unless the settings allow others."""
        if not may_be_private(settings):
            name = "TWISTED_DNS_RESOLVER"  # since Scrapy 2.18
            settings.set(name if name in settings else "DNS_RESOLVER", PublicResolver, "addon")

    def update_settings(self, settings: BaseSettings) -> None:
        """Put the middlewares in."""
        spider = settings["SPIDER_MIDDLEWARES"]
        spider.set(FleetMiddleware, _CLOSEST_TO_THE_ENGINE, "addon")
        downloader = settings["DOWNLOADER_MIDDLEWARES"]
        downloader.set(OutcomeMiddleware, _CLOSEST_TO_THE_ENGINE, "addon")
        downloader.set(HostMiddleware, _CLOSEST_TO_THE_DOWNLOADER, "addon")
        for name, place, ours in _REPLACED:
            if name not in downloader:
                downloader.set(name, None, "addon")
                downloader.set(ours, place, "addon")
