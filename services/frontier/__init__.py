"""The frontier: an optional worker that fleets which speak URLFrontier's API talk to, over gRPC."""
