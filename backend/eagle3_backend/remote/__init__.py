"""How to reach a host: link, host keys, jump hosts, gateway client, payload, tunnels and the embedded host."""
