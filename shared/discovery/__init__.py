"""What a site says of itself: its robots.txt, and the links of its pages and feeds."""
