"""What people are shown of pages, hosts, sources and predictions.

The command line and the coordinator's page show the same, by this code.
"""
