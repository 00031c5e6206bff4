"""Repeated spans: every span of 50 words that enough documents hold, and the hotspots that such spans make up.

1. :mod:`.stage` emits the winnowed fingerprints of all documents.
2. :mod:`.windows`: the frequent fingerprints; a second reading hashes the windows that selected them; the frequent
   windows, each with its first occurrence.
3. :mod:`.runs`: consecutive windows of a document that are consecutive at their first occurrences become runs.
4. :mod:`.hotspots`, :mod:`.matching`: runs become hotspots.
5. :mod:`.link` calls all of these; a third reading counts the tokens that hotspots cover.

A *window* is 50 consecutive words. A document is a number, the place (:func:`dataaudit.manifest.locate.places_of`) of
its file and row.
"""
