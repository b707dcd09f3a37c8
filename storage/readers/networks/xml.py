"""Reads XML from untrusted files as a stream of events: entities, overlong tokens and unknown encodings are refused."""

from __future__ import annotations

import re
from xml.sax import SAXParseException, handler, xmlreader

from defusedxml import DefusedXmlException
from defusedxml.sax import make_parser

from storage.errors import InvalidGraph
from storage.readers.fields import shown
from storage.readers.source import Source

#: Maximum size of a tag or comment in bytes.  The parser scans an unfinished tag or comment again with every further
#: piece, so its size must be bounded.
_TOKEN = 4 << 20
_ENCODING = re.compile(rb"\s*+<\?xml[^>]{0,200}?\sencoding\s*+=\s*+[\"']([^\"'>]{1,80}+)[\"']")


class XmlEvents(handler.ContentHandler):
    """The base class of the handlers of GraphML and GEXF."""

    @property
    def _line(self) -> int:
        return self._locator.getLineNumber() or 0

    def setDocumentLocator(self, locator: xmlreader.Locator) -> None:  # noqa: N802 - SAX's name
        """Store the object that knows the parser's line (SAX)."""
        self._locator = locator

    def _need(self, attrs: xmlreader.AttributesImpl | dict[str, str], key: str, tag: str) -> str:
        if key not in attrs:
            raise InvalidGraph(f"<{tag}> without {key!r}", line=self._line, field=key)
        return str(attrs[key])


def parse_xml(source: Source, events: handler.ContentHandler) -> None:
    """Send the elements of ``source`` to ``events``.  Raises InvalidGraph, with the line, for XML that is malformed or
    unsafe.
    """
    _check_encoding(source.start)
    parser = make_parser()
    parser.forbid_dtd = False
    parser.forbid_entities = True
    parser.forbid_external = True
    parser.setFeature(handler.feature_namespaces, False)
    parser.setContentHandler(events)
    events.setDocumentLocator(parser)
    try:
        _feed(source, parser)
    except SAXParseException as error:
        raise InvalidGraph(f"not well-formed XML: {error.getMessage()}", line=error.getLineNumber()) from None
    except DefusedXmlException as error:
        raise InvalidGraph(f"XML entities are refused: {error}", field="ENTITY") from None


def _feed(source: Source, parser: xmlreader.IncrementalParser) -> None:
    place, pending = (0, 0), 0
    for piece in source.pieces():
        parser.feed(piece)
        before, place = place, (parser.getLineNumber(), parser.getColumnNumber())  # type: ignore[attr-defined]
        pending = pending + len(piece) if place == before else 0
        if pending > _TOKEN:
            raise InvalidGraph(f"a tag or comment of more than {_TOKEN >> 20} MiB", line=place[0])
    parser.close()


def _check_encoding(start: bytes) -> None:
    """Refuse an encoding that the parser cannot read.  The parser reads UTF-8, UTF-16 and every encoding that has one
    byte per character.
    """
    declared = _ENCODING.match(start)
    if declared is None:
        return
    name = declared[1].decode("latin-1")
    try:
        known = name.upper() in ("UTF-8", "UTF-16") or len(bytes(range(256)).decode(name, "replace")) == 256
    except (LookupError, ValueError):
        known = False
    if not known:
        raise InvalidGraph(f"XML in the encoding {shown(name)} is not read; UTF-8 is", line=1, field="encoding")
