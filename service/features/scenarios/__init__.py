"""Saved questions, their revisions, share links and budget workbooks."""
