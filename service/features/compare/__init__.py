"""One job on many clusters at many prices."""
