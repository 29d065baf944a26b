"""Pages to be imported, as most tests want them."""

import numpy as np
import pyarrow as pa

from shared.store.import_rows import PageBatch
from shared.store.page_status import NEVER


def page_batch(urls, **columns):
    """Pages of equal importance, without a bound and never crawled, but for some `columns`."""
    count = len(urls)
    defaults = {
        "importance": np.ones(count),
        "max_age_days": np.full(count, np.inf),
        "crawled_at": np.full(count, NEVER),
    }
    return PageBatch(pa.array(urls, pa.string()), **(defaults | columns))
