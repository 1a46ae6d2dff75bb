"""One file for each launcher, which starts what a training framework's file says."""
