"""`python -m tenure.cli`: the command line, where no script is installed."""

from tenure.cli.app import main

main()
