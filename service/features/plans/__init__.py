"""The best layouts for a job."""
