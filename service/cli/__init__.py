"""The command line ``apsp``: options, help pages, progress, and the bodies of the commands."""
