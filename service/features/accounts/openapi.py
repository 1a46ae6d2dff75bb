"""OpenAPI of the audit log."""

from service.api.openapi import Schema, list_parameters, list_schemas
from service.features.accounts.audit import COLUMNS, NEWEST_FIRST


def audit_schemas() -> dict[str, Schema]:
    """The schemas that the audit log refers to."""
    return list_schemas("AuditRecord", "A requested change.", COLUMNS)


def audit_parameters() -> dict[str, Schema]:
    """The parameters that the audit log takes beside those of every list."""
    return list_parameters("AuditRecord", COLUMNS, NEWEST_FIRST)
