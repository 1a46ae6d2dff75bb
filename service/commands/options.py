"""Which options do several commands share?"""

from typing import Annotated

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print the answer as the API gives it.")]
AsCsv = Annotated[bool, typer.Option("--csv", help="Print a table for a spreadsheet.")]
Body = Annotated[str, typer.Argument(help="JSON file that holds what POST takes; - for standard input.")]
