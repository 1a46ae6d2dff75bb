"""Who may do what, operation by operation: written by hand, so that nothing is allowed because the code allows it."""

from collections.abc import Iterator, Mapping

from service.store.keys import Scope
from tests.api.own_bodies import OWN

EVERYBODYS: Mapping[Scope | None, str] = {
    None: "createAdmissionReview getHealth getReadiness",
    "sheet": "getCell getCellReason getCellTable getCellXml",
    "read": """
        askSentence createBatch createCheck createComparison createComparisonAsCsv createComparisonAsXlsx
        createDiagnosis createDifference createDifferenceAsCsv createDifferenceAsMd createDifferenceAsXlsx
        createEstimate createExport createFlop createGpuHours createImport createKubernetesCheck
        createMemory createPlans createProfile createRecognisedImport createScriptCheck createSensitivity
        createSensitivityAsCsv createSensitivityAsXlsx createSlurmCheck createSolution
        createTimeline getAccuracy getAdapter getComparison getComparisonAsCsv getComparisonAsXlsx
        getEstimate getFlop getGpuHours getMemory getSlurmHook getStoredEstimate getTotalsAccuracy
        listAccuracyPoints listAccuracyPointsAsCsv listAccuracyPointsAsXlsx listChoices
        listAdapters listExportTargets listImportFormats getMetrics listRevisions listRevisionsAsCsv
        listRevisionsAsXlsx listWorkers
        listScenarios listScenariosAsCsv listScenariosAsXlsx listSweeps listSweepsAsCsv listSweepsAsXlsx
        listLaunchChecks listLaunchChecksAsCsv listLaunchChecksAsXlsx
        listMeasurements listMeasurementsAsCsv listMeasurementsAsXlsx listMeasurementsAsParquet
        listCalibrations listCalibrationsAsCsv listCalibrationsAsXlsx
        listModels listModelsAsCsv listModelsAsXlsx listGpus listGpusAsCsv listGpusAsXlsx
        listClusters listClustersAsCsv listClustersAsXlsx listPrices listPricesAsCsv listPricesAsXlsx
        listRateCards listRateCardsAsCsv listRateCardsAsXlsx listRegions listRegionsAsCsv listRegionsAsXlsx
    """,
    "write": """
        createScenario createSweep createLaunchCheck createCalibration createReconciliation
        importMeasurements importMeasurementFile quarantineMeasurements releaseMeasurements importModel importPrices
        createModel createGpu createCluster createPrice createRateCard createRegion
    """,
    "worker": "claimJob finishJob getSweepContent keepJob keepJobFile",
    "admin": "listAuditRecords listAuditRecordsAsCsv listAuditRecordsAsXlsx",
}
"""By the scope that they need, operations at whose address no object of somebody stands."""

OF_OWNERS: Mapping[str, Mapping[Scope, str]] = {
    "scenarios": {
        "sheet": "getScenarioAsXlsx getScenarioAsOds getScenarioReport",
        "read": "getScenario",
        "write": "replaceScenario updateScenario deleteScenario shareScenario listShares revokeShare",
    },
    "launch-checks": {
        "read": "getLaunchCheck getLaunchCheckEvents getLaunchCheckTrace",
        "write": "cancelLaunchCheck",
    },
    "sweeps": {
        "read": "getSweep getSweepEvents getSweepAsParquet getSweepAsCsv",
        "write": "cancelSweep resumeSweep",
    },
    "measurements": {"read": "getMeasurement"},
    "calibrations": {
        "read": "getCalibration getCalibrationDrift",
        "write": "promoteCalibration rollBackCalibration retireCalibration",
    },
    "models": {"read": "getModel", "write": "replaceModel patchModel deleteModel"},
    "gpus": {"read": "getGpu", "write": "replaceGpu patchGpu deleteGpu"},
    "clusters": {"read": "getCluster", "write": "replaceCluster patchCluster deleteCluster"},
    "prices": {"read": "getPrice", "write": "replacePrice patchPrice deletePrice"},
    "rate-cards": {"read": "getRateCard", "write": "replaceRateCard patchRateCard deleteRateCard"},
    "regions": {"read": "getRegion", "write": "replaceRegion patchRegion deleteRegion"},
}
"""By the list that it stands in and the scope that they need, operations at the address of one object: its owner and
admins find it there, and nobody else."""

FACTS = frozenset(own.plural for own in OWN)
"""Lists of the catalogue: beside shipped rows each caller finds its own there."""

LISTS = ("scenarios", "launch-checks", "sweeps", "measurements", "calibrations")
"""Lists in which callers find their own."""


def rows() -> Iterator[tuple[str, Scope | None, str | None]]:
    """Each operation with the scope that it needs, and the list of its object."""
    for scope, operations in EVERYBODYS.items():
        yield from ((operation, scope, None) for operation in operations.split())
    for plural, scopes in OF_OWNERS.items():
        for needed, operations in scopes.items():
            yield from ((operation, needed, plural) for operation in operations.split())


ROWS: Mapping[str, tuple[Scope | None, str | None]] = {name: (scope, plural) for name, scope, plural in rows()}
