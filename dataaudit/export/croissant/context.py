"""Words of Croissant 1.1: the JSON-LD context of its appendix 1, and what mlcroissant's own context has beyond it."""

from __future__ import annotations

from typing import Any

CROISSANT = "http://mlcommons.org/croissant/1.1"
RAI = "http://mlcommons.org/croissant/RAI/1.0"
_TERMS = (
    "annotation arrayShape citeAs column containedIn equivalentProperty excludes extract field fileProperty "
    "fileObject fileSet format includes isArray isLiveDataset jsonPath key md5 parentField path readLines recordSet "
    "references regex repeated replace samplingRate sdVersion separator source subField transform unArchive value"
)
CONTEXT: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "sc": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "dct": "http://purl.org/dc/terms/",
    "prov": "http://www.w3.org/ns/prov#",
    "conformsTo": "dct:conformsTo",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "description": {"@container": "@language"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "name": {"@container": "@language"},
    **{term: f"cr:{term}" for term in _TERMS.split()},
}
"""The appendix writes http://schema.org/, mlcroissant reads https://schema.org/ only: both name the same words."""
