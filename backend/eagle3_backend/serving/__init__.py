"""Sessions with engines: endpoints, tunnels and acceptance."""
