"""The protocol of workers: claim, heartbeat, files, finish."""
