"""What runs on a host beside the work: gateway, supervisor, journal and telemetry."""
