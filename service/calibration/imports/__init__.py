"""Which measurements do files of other tools hold? One file a format, each from text to records of probes."""
