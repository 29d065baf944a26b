"""The poller: streams of events that others publish become signals."""
