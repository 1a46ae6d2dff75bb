"""One file for each tool that a question can be written for; `service/exports/table.py` lists them."""
