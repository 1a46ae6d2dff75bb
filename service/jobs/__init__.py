"""The durable queue: jobs, leases, ends, events and files."""
