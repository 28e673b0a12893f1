"""The work behind the panel: pure rooms, laptop rooms and host rooms."""
