"""Readers of networks from programs that draw or analyse them, such as GML, GraphML and Pajek, and OpenStreetMap."""
