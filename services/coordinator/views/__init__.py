"""What the coordinator's page shows of pages, hosts, sources and predictions.

It is looked up in processes of their own (`answering`), which the coordinator never waits for.
"""
