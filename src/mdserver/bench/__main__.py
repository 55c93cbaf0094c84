"""`python -m mdserver.bench`: the same as `mdserver bench`, for environments without scripts."""

import sys

import click

from mdserver.bench.commands import bench
from mdserver.errors import MdserverError


def main() -> int:
    """Run a command; report a failure in one line on stderr."""
    try:
        bench.main(prog_name="python -m mdserver.bench", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return 130
    except (MdserverError, OSError) as error:
        click.echo(f"mdserver.bench: {error}", err=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
