"""One file for each launcher that starts what a training framework's file says; `service/exports/table.py` lists them."""
