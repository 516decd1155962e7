"""Several processes that train one model: ranks, their heartbeat, sharded weights."""
