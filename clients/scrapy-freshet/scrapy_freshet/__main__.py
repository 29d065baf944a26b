"""`python -m scrapy_freshet`."""

from scrapy_freshet.command import main

main()
