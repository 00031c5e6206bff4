"""Repeated spans: every span of 50 words that enough documents hold, and the hotspots that such spans make up.

1. :mod:`fingerprints`: of the winnowed n-grams of all documents, those that enough documents have.
2. :mod:`link`: their documents are read again; every window of 50 words that has one is hashed.
3. :mod:`windows`: of these, those that enough documents hold, each with the first place where it stands.
4. :mod:`runs`: windows of one part become runs: so many windows from here on are those from there on.
5. :mod:`hosts`, :mod:`paths`, :mod:`matching`, :mod:`choice`, :mod:`find`: runs become hotspots.
6. :mod:`covered`: what they cover is read once more, and its tokens are counted.

A *window* is 50 consecutive words. A document is named by one number: the place
(:func:`dataaudit.manifest.locate.places_of`) of its file and row.
"""
