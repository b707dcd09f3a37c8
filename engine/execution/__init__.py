"""How a plan is run in this process, and what is measured of the machine beforehand."""
