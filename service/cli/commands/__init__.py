"""The bodies of the commands of ``apsp``; imported only when a command runs, so that ``--help`` is fast."""
