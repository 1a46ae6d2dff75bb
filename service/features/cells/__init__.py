"""Single numbers of an estimate as text, for spreadsheets."""
