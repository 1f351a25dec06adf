"""Real NATS, Valkey and SeaweedFS servers from wheels, on loopback, for one run."""
