"""How a plan is carried out in this process, and what is measured of the machine beforehand."""
