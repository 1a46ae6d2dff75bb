"""Lists of the catalogue, custom rows, price import and revisions."""
