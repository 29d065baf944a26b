"""The scheduler: asks at every slot of the budget which page is worth most to crawl now."""
