"""How to reach a host: links, host keys, the gateway client, the payload and the embedded host."""
