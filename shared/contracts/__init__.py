"""Every topic, its key and partitions, and the message on it: the wire format of Freshet."""
