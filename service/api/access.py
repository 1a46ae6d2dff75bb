"""What does an operation ask of its caller? One table: enforcement, contract and tests read it.

GET reads, and PUT, PATCH and DELETE change; a POST may do either, so each has its row, and none is served without one.
"""

from collections.abc import Mapping

from service.api.json_schema import Schema
from service.api.share_links import PARAMETER
from service.store import Scope

SINGULAR: Mapping[str, str] = {
    "models": "Model",
    "gpus": "Gpu",
    "clusters": "Cluster",
    "prices": "Price",
    "rate-cards": "RateCard",
    "regions": "Region",
}
"""What one row of a list is called in the names of schemas and operations."""

OPEN = frozenset({"getHealth", "getReadiness", "createAdmissionReview"})
"""Operations that ask for no key: probes send none, and the address of the webhook holds a secret of its own."""

SHEETS = frozenset({
    "getCell", "getCellReason", "getCellTable", "getCellXml", "getScenarioAsOds", "getScenarioAsXlsx",
})  # fmt: skip
"""Operations for which a sheet key is enough, in the query too, for a sheet can send nothing else."""

SHARED = frozenset({"getScenario", "getScenarioAsOds", "getScenarioAsXlsx"})
"""Operations that a link opens which the service signed for that scenario."""

OF_WORKERS = frozenset({"claimJob", "finishJob", "getSweepContent", "keepJob", "keepJobFile"})
"""Operations that only workers have a use for."""

OF_ADMINS = frozenset({"listAuditRecords", "listAuditRecordsAsCsv", "listAuditRecordsAsXlsx"})
"""Operations that look after the service."""

OF_WRITERS = frozenset({"listShares"})
"""Operations that change nothing, and need what the changes need that they are about."""

OF_METHODS: Mapping[str, Scope] = {"GET": "read", "PUT": "write", "PATCH": "write", "DELETE": "write"}

OF_POSTS: Mapping[str, Scope] = {
    "cancelLaunchCheck": "write",
    "cancelSweep": "write",
    "createBatch": "read",
    "createCalibration": "write",
    "createCheck": "read",
    "createComparison": "read",
    "createComparisonAsCsv": "read",
    "createComparisonAsXlsx": "read",
    "createDiagnosis": "read",
    "createEstimate": "read",
    "createExport": "read",
    "createFlop": "read",
    "createGpuHours": "read",
    "createImport": "read",
    "createKubernetesCheck": "read",
    "createLaunchCheck": "write",
    "createMemory": "read",
    "createPlans": "read",
    "createReconciliation": "write",
    "createScenario": "write",
    "createSensitivity": "read",
    "createSensitivityAsCsv": "read",
    "createSensitivityAsXlsx": "read",
    "createSlurmCheck": "read",
    "createSolution": "read",
    "createSweep": "write",
    "createTimeline": "read",
    "importMeasurementFile": "write",
    "importMeasurements": "write",
    "importModel": "write",
    "importPrices": "write",
    "resumeSweep": "write",
    "promoteCalibration": "write",
    "quarantineMeasurements": "write",
    "releaseMeasurements": "write",
    "retireCalibration": "write",
    "rollBackCalibration": "write",
    "shareScenario": "write",
    **{f"create{singular}": "write" for singular in SINGULAR.values()},
}
"""What asks a question writes nothing, whatever its method."""

KEY, SHEET_KEY, SHARE_LINK = "key", "sheetKey", "shareLink"

SCOPE = "x-scope"
"""Where an operation of the contract says which scope its caller needs: only OAuth has scopes among its schemes."""

SECURITY_SCHEMES: Schema = {
    KEY: {
        "type": "http",
        "scheme": "bearer",
        "description": "A key that `traincost keys create` made, or a token of the OpenID Connect provider that the "
        "service is set up with, with a scope that allows the operation's x-scope. A service with neither asks for "
        "none.",
    },
    SHEET_KEY: {
        "type": "apiKey",
        "in": "query",
        "name": "key",
        "description": "A key whose only scope is sheet, for programs that send an address and nothing else.",
    },
    SHARE_LINK: {
        "type": "apiKey",
        "in": "query",
        "name": PARAMETER,
        "description": "A signature for one scenario, which links of POST /v1/scenarios/{scenario_id}/share hold.",
    },
}


def needed(operation_id: str | None, method: str) -> Scope | None:
    """The scope that an operation needs.

    Args:
        operation_id: the operation; None for a page, which holds nobody's data
        method: GET, POST, PUT, PATCH or DELETE

    Returns:
        the scope; None where no key is asked for

    Raises:
        KeyError: it is a POST that has no row in the table
    """
    if operation_id is None or operation_id in OPEN:
        return None
    if operation_id in SHEETS:
        return "sheet"
    if operation_id in OF_WORKERS:
        return "worker"
    if operation_id in OF_ADMINS:
        return "admin"
    if operation_id in OF_WRITERS:
        return "write"
    return OF_POSTS[operation_id] if method == "POST" else OF_METHODS[method]


def is_limited(operation_id: str | None, method: str) -> bool:
    """Whether requests for an operation are counted, and refused where they are too many.

    Args:
        operation_id: the operation; None for a page
        method: GET, POST, PUT, PATCH or DELETE

    Returns:
        false for pages, probes and the webhook, which nothing may keep from being answered
    """
    return needed(operation_id, method) is not None


def access_to(operation_id: str, method: str) -> Schema:
    """What the contract says that an operation needs.

    Args:
        operation_id: the operation
        method: its method

    Returns:
        the scope, and OpenAPI security requirements, any one of which is enough; no scope where no key is asked for
    """
    scope = needed(operation_id, method)
    if scope is None:
        return {"security": []}
    in_query = [name for name, operations in ((SHEET_KEY, SHEETS), (SHARE_LINK, SHARED)) if operation_id in operations]
    return {"security": [{name: []} for name in (KEY, *in_query)], SCOPE: scope}
