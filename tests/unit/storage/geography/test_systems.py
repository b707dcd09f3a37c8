"""Systems of coordinates are told by their definitions."""

from __future__ import annotations

import pytest

from storage.geography.systems import DEFAULT, UNKNOWN, from_json, from_text

FOOT = (
    'PROJCS["NAD83 / New York Long Island (ftUS)",GEOGCS["NAD83",DATUM["x",SPHEROID["GRS 1980",6378137,298.257]],'
    'UNIT["degree",0.0174532925199433]],PROJECTION["Lambert_Conformal_Conic_2SP"],PARAMETER["false_northing",0],'
    'UNIT["US survey foot",0.304800609601219,AUTHORITY["EPSG","9003"]],AXIS["Easting",EAST],AUTHORITY["EPSG","2263"]]'
)
UTM = (
    'PROJCRS["WGS 84 / UTM zone 35N",BASEGEOGCRS["WGS 84",DATUM["World ""Geodetic"" System",'
    'ELLIPSOID["WGS 84",6378137,298.257223563,LENGTHUNIT["metre",1]]]],CONVERSION["UTM zone 35N",'
    'METHOD["Transverse Mercator",ID["EPSG",9807]],PARAMETER["False easting",500000,LENGTHUNIT["kilometre",1000]]],'
    'CS[Cartesian,2],AXIS["(E)",east,ORDER[1],LENGTHUNIT["metre",1]],AXIS["(N)",north,LENGTHUNIT["metre",1]]]'
)
WEB = 'PROJCS["WGS 84 / Pseudo-Mercator",GEOGCS["WGS 84"],PROJECTION["Mercator_1SP"],UNIT["metre",1]]'


@pytest.mark.parametrize(
    ("code", "text", "kind", "metres"),
    [
        ("EPSG:4326", 'GEOGCS["WGS 84",UNIT["degree",0.0174]]', "lonlat", None),
        ("EPSG:4258", 'GEOGCS["ETRS89",UNIT["degree",0.0174]]', None, None),
        ("EPSG:2263", FOOT, "plane", 0.304800609601219),
        ("EPSG:32635", UTM, "plane", 1),
        ("NONE:0", f'COMPD_CS["with heights",{UTM},VERT_CS["h",UNIT["foot",0.3]]]', "plane", 1),
        ("NONE:0", f'BOUNDCRS[SOURCECRS[{UTM}],TARGETCRS[GEOGCRS["WGS 84"]]]', "plane", 1),
        ("EPSG:3857", WEB, "plane", None),
        ("NONE:0", WEB.replace("Mercator_1SP", "Hotine_Oblique_Mercator").replace("Pseudo-", "Oblique "), "plane", 1),
        ("NONE:0", WEB.replace("Mercator", "Lambert").replace("1]", "-1]"), "plane", None),
        ("NONE:0", WEB.replace("Mercator", "Lambert").replace("1]", "one]"), "plane", None),
        ("NONE:-1", "undefined", None, None),
        ("NONE:-1", ']]"', None, None),
        ("NONE:-1", "[" * 10_000, None, None),
        ("NONE:-1", "", None, None),
    ],
)
def test_text(code, text, kind, metres):
    found = from_text(code, text)
    assert (found.kind, found.metres) == (kind, metres)
    assert found.name.startswith(code)


UTM_JSON = {
    "type": "ProjectedCRS", "name": "UTM", "id": {"authority": "EPSG", "code": 32635},
    "conversion": {"method": {"name": "Transverse Mercator"}}, "coordinate_system": {"axis": [{"unit": "metre"}]},
}  # fmt: skip


@pytest.mark.parametrize(
    ("crs", "kind", "metres"),
    [
        ({"type": "GeographicCRS", "name": "x", "id": {"authority": "OGC", "code": "CRS84"}}, "lonlat", None),
        ({"type": "GeographicCRS", "name": "x", "id": {"authority": "EPSG", "code": 4258}}, None, None),
        (UTM_JSON, "plane", 1),
        ({"type": "CompoundCRS", "components": [UTM_JSON, {}]}, "plane", 1),
        ({"type": "BoundCRS", "source_crs": UTM_JSON}, "plane", 1),
        ({**UTM_JSON, "coordinate_system": {"axis": [{"unit": {"conversion_factor": 0.3048}}]}}, "plane", 0.3048),
        ({**UTM_JSON, "coordinate_system": {"axis": [{"unit": "foot"}]}}, "plane", None),
        ({**UTM_JSON, "conversion": {"method": {"name": "Equidistant Cylindrical"}}}, "plane", None),
        ({"type": "CompoundCRS", "components": []}, None, None),
        ({"type": "EngineeringCRS"}, None, None),
        (None, None, None),
        ("EPSG:4326", None, None),
    ],
)
def test_json(crs, kind, metres):
    found = from_json(crs)
    assert (found.kind, found.metres) == (kind, metres)


def test_what_is_not_said():
    assert (DEFAULT.kind, UNKNOWN.kind, from_json([])) == ("lonlat", None, UNKNOWN)
