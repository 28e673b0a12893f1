"""The one facade that both faces talk to: commands in, snapshots out."""
