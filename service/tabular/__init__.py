"""Rows as CSV, XLSX, ODS and Parquet; cursors, filters and sorting of lists."""
