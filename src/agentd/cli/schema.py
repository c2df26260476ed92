"""`agentd schema`: what a document may hold. Touches nothing."""

import click


@click.command(short_help="Print the JSON Schema of the configuration.")
def command() -> None:
    """Print the JSON Schema of the configuration document, for editors and other checks."""
    import json

    from agentkit.core.contracts.errors import MissingExtraError

    try:
        from agentd.config import json_schema
    except MissingExtraError as error:
        raise click.ClickException(str(error)) from None
    click.echo(json.dumps(json_schema(), indent=2, ensure_ascii=False))
