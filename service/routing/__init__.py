"""Answers in the protocols of OSRM and Valhalla, over a result whose graph has coordinates: ``apsp serve-routes``."""
