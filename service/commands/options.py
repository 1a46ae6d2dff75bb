"""Which options do several commands share?"""

from typing import Annotated

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print the answer as the API gives it.")]
AsCsv = Annotated[bool, typer.Option("--csv", help="Print a table for a spreadsheet.")]
Url = Annotated[str, typer.Option(envvar="TRAINCOST_URL", help="Address of the service.")]
Key = Annotated[
    str | None, typer.Option(envvar="TRAINCOST_KEY", help="Key to the service; better given in the environment.")
]
Body = Annotated[str, typer.Argument(help="JSON file that holds what POST takes; - for standard input.")]
