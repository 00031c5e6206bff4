"""Streets: what stands around a number and a word for street, and tells an address from a figure, a title or a year.

*Court*, *Drive*, *Way*, *Place* and *Square* are words of every English text, *place* and *route* of every French one;
*Page 12, 5000 Entries* is written like *Vodickova 12, 11000 Praha*. Without a gazetteer the words beside them decide.
"""

from __future__ import annotations

import re

from dataaudit.detectors.patterns.entity import Candidate, Evidence

_MONTHS = (
    "january|february|march|april|may|june|july|august|september|october|november|december|jan|feb|mar|apr|jun|jul|aug|"
    "sept?|oct|nov|dec"
)
_COUNTED = (
    "act|algorithm|android|apollo|appendix|article|bible|case|catch|chapter|chart|class|column|day|diagram|"
    "edition|episode|equation|example|exercise|exhibit|figure|fig|firefox|game|gpt|grade|group|ios|iphone|issue|item|"
    "java|layer|lemma|lesson|level|lines?|mac ?os|model|module|office|pages?|paragraph|part|phase|php|problem|python|"
    "question|round|row|rule|scene|season|section|series|slide|stage|step|table|task|test|theorem|tier|title|top|track|"
    "type|ubuntu|unicode|version|vol|volume|week|windows|year"
)
_NUMBERED = re.compile(rf"\b(?:{_COUNTED})s?[. ]{{1,2}}\Z")
"""What is counted, right before its number."""
_LAST_COUNTED = re.compile(rf"(?:\A|[\s.])(?:{_COUNTED}|{_MONTHS})\.? [0-9]")
_THINGS = re.compile(
    r" (?:bytes|cells|copies|days|documents|entries|examples|files|hours|images|items|lines|members|miles|months|pages|"
    r"participants|patients|people|photos|pieces|points|records|rows|samples|sentences|steps|students|tokens|units|"
    r"updates|users|verbs|viewers|visitors|votes|words|years)\Z"
)
"""What there are thousands of, in the place of a town."""
_YEAR = re.compile(r"(?:19|20)[0-9]{2}\Z")
_IN_A_YEAR = re.compile(rf"\b(?:in|since|by|from|of|until|during|around|circa|early|late|mid|the|{_MONTHS}),?[ -]\Z")
_COPYRIGHT = re.compile(r"\b(?:copyright|author|license)|\(c\)|©|\b(?:19|20)[0-9]{2},? [a-z]")
"""Years that stand before names of authors, not of streets."""
_ARTICLE = re.compile(r"\b(?:the|an?|these|those|first|last|next|top|only|install|with|of)[ \n]\Z")
_MANY_MEANINGS = frozenset(
    ("drive", "way", "court", "place", "square", "close", "circle", "row", "trail", "walk", "parade")
)
"""Kinds of street, in lower case, that are words of other things."""
_COMPOUND = re.compile(
    r" (?:(?:hard|combo|external|internal|optical|cd-?rw?|dvd(?:-rom)?|cd-rom|backup|dis[kc]|usb|flash|thumb|pen|tape|"
    r"zip|google|test|wheel|range|factor|features|results) drive|"
    r"(?:supreme|district|high|circuit|federal|appeals|criminal|county|tennis|food) court|"
    r"(?:mean|least|chi|time) square|way close|(?:full|inner) circle|(?:front|back|data|header) row|"
    r"(?:easy|best|great|new|only|right|long|other|good|better|simple|fast|one|two|three|steps|too) way|"
    r"(?:first|second|third|best|great|good|perfect|star) place|(?:day|audit) trail|(?:minute|hour) walk)\Z"
)
_NO_NAMES = frozenset(
    re.findall(
        r"\w+",
        "the a an most best more other easy simple great bedroom point star factor gb tb mb day days hour hours minute "
        "year years way ways reasons things tips people men women angry",
    )
)
"""First words, in lower case, of what is no name of a street."""
_WORDS_LIST = (
    "access action all and api app audio basic big bit black blue boiling bug bullet bus camera check com "
    "control corn critical data day dead decimal default design display dry end entry error exit extra fixed "
    "floating focal football force foreign form free freezing full function general global good green grid "
    "group high hot how html i/o image in input int internal key kernel large last list local long low "
    "magnetic main major map match math memory menu minor mount multiple national network new no node object "
    "of old open output page parallel power primary private public query random red reference road root safe "
    "sample secondary secret serial server shared short side single small source space special start status "
    "stop string system table talking tcp test text time to top total traffic training tree turning udp unix "
    "usb user using vanishing video view vertical horizontal virtual web white windows with yellow"
)
_WORDS = _NO_NAMES | frozenset(_WORDS_LIST.split())
"""These, and words of technical texts, before a kind of street that means much else: *12 data points*."""


def _is_counted(words: list[str], before: str) -> bool:
    """Whether the first word numbers a figure, or is a year or a day of a month."""
    if _NUMBERED.search(before):
        return True
    if _YEAR.match(words[0]) and (_IN_A_YEAR.search(before) or _COPYRIGHT.search(before)):
        return True
    return len(words) > 3 and bool(re.fullmatch(_MONTHS, words[1])) and int(re.sub(r"\D", "", words[0])) <= 31


def number_first(candidate: Candidate) -> Evidence:
    """Judge ``15 Millicent Drive``: no figure, no date, no year of a sentence, no hard drive and no supreme court."""
    words = candidate.text.lower().replace(",", "").split()
    if _is_counted(words, candidate.before):
        return Evidence.REJECTED
    if words[-1] not in _MANY_MEANINGS:
        return Evidence.FORM
    other = _COMPOUND.search(" ".join(words)) or words[1] in _NO_NAMES or _ARTICLE.search(candidate.before)
    return Evidence.REJECTED if other else Evidence.FORM


_SELDOM_COUNTED = re.compile(
    r" (?:alley|avenue|bayou|bluff|brook|burg|bypass|canyon|cape|causeway|cliff|cove|creek|crescent|crest|"
    r"crossroad|dale|estate|expressway|ferry|ford|forge|freeway|garden|glen|grove|harbou?r|haven|"
    r"height|highway|hill|hollow|inlet|isle|knoll|lane|lodge|manor|meadow|mew|mill|motorway|neck|"
    r"orchard|oval|overpass|parkway|pike|pine|plaza|prairie|ranch|rapid|ridge|road|rue|shoal|shore|"
    r"skyway|stravenue|street|terrace|throughway|trafficway|turnpike|underpass|viaduct|ville|vista)s?\Z"
)
"""Kinds of street that are words of little else."""
_LINE_BEFORE = re.compile(r"(?:\A|\n)[ \t>*|]{0,12}\Z")
_LINE_AFTER = re.compile(r"[ \t.]{0,4}(?:\n|\Z)")
_AT = re.compile(r"\b(?:at|to|in|near|outside|from|opposite|behind|address):? \Z")
_TOWN_AFTER = re.compile(
    r"[ ,\n]{1,3}[^\n]{2,40}[,\n] ?(?:[a-z]{2} [0-9]{5}|[a-z]{1,2}[0-9][0-9a-z]? [0-9][a-z]{2})(?![0-9a-z])"
)
"""A town with its state and code, or a British postcode."""


def number_and_name(candidate: Candidate) -> Evidence:
    """Judge ``429 Berry Valleys``: a flat or a town's code is strong; without, it stands in a line or behind *at*."""
    words = candidate.text.lower().removesuffix(candidate.groups.get("unit", "").lower()).split()
    if _is_counted(words, candidate.before):
        return Evidence.REJECTED
    if candidate.groups.keys() & {"flat", "unit"} or _TOWN_AFTER.match(candidate.after):
        return Evidence.STRONG
    if words[1] in _WORDS:
        return Evidence.REJECTED
    number, text = words[0], " ".join(words)
    seldom = len(number) > 2 or _SELDOM_COUNTED.search(text)
    alone = _LINE_BEFORE.search(candidate.before) and (
        _LINE_AFTER.match(candidate.after) or candidate.after.startswith(",")
    )
    placed = _AT.search(candidate.before) or (seldom and (alone or candidate.context))
    return Evidence.FORM if placed else Evidence.REJECTED


_COUNTS = re.compile(r" (?:de|mil|milh|anos|dias|horas|minutos|metros|km|reais|por|pontos|gols|pessoas)\b")


def brazilian(candidate: Candidate) -> Evidence:
    """Judge ``Lagoa da Cunha, 46``: no year, no date, nothing that is counted behind a place."""
    year = _YEAR.search(candidate.text) and not candidate.context
    return Evidence.REJECTED if year or _COUNTS.match(candidate.after) else Evidence.FORM


_NAMED_YEAR = re.compile(r"[^,.#:] (?:19|20)[0-9]{2}\Z")
_IN_USE = re.compile(r"[ \t]{0,2}(?:,|[-–] ?[0-9]|\n)")
"""What follows a house number: a town, a floor."""
_ABBREVIATED = re.compile(r"\A(?:via|largo|plaza|camino|corso|strada|al\.) (?P<name>[A-Z]{2,6}) [0-9]", re.IGNORECASE)
_ROMAN = re.compile(r"[IVXLCDM]+\Z")
_PROGRAMS = re.compile(
    r"\Avia (?:android|bluetooth|chrome|email|ethernet|facebook|firefox|gmail|java|linux|office|outlook|php|python|"
    r"rail|route|twitter|whatsapp|wi-?fi|windows|youtube) [0-9]"
)
_REFERENCE = re.compile(r"\b(?:et|import) \Z")


def kind_first(candidate: Candidate) -> Evidence:
    """Judge ``Via Garibaldi 8``: no *via USB 3*, no *et al. Nature 518*, no title with a year behind it."""
    text = candidate.text
    if _REFERENCE.search(candidate.before) or _PROGRAMS.match(text.lower()):
        return Evidence.REJECTED
    abbreviated = _ABBREVIATED.match(text)
    if (
        abbreviated
        and abbreviated["name"].isupper()
        and not text[:3].isupper()
        and not _ROMAN.match(abbreviated["name"])
    ):
        return Evidence.REJECTED
    dated = _NAMED_YEAR.search(text) and not candidate.context and not _IN_USE.match(candidate.after)
    return Evidence.REJECTED if dated else Evidence.FORM


_FRENCH_WORD = re.compile(r"[0-9]+ (?:place|route|square|passage|cours|voie|esplanade) [A-Z\xc3]")
"""A number, a word of English or of lessons, and a name at once: no comma, no *bis*, no *de*."""
_POSTCODE = re.compile(r"[ \t]{0,2}[,\n]?[ \t-]{0,3}[0-9]{4,5}(?![0-9])")


def french(candidate: Candidate) -> Evidence:
    """Judge ``48 place Bellecour``: one like *3 route handlers* needs a postcode or a word that speaks for it."""
    plain = _FRENCH_WORD.match(candidate.text) is not None
    return (
        Evidence.REJECTED if plain and not candidate.context and not _POSTCODE.match(candidate.after) else Evidence.FORM
    )


def before_a_town(candidate: Candidate) -> Evidence:
    """Judge ``Vodickova 12, 11000 Praha``: no counted thing before the first number, no thing behind the second."""
    text = " ".join(candidate.text.lower().split())
    return Evidence.REJECTED if _LAST_COUNTED.search(text) or _THINGS.search(text) else Evidence.FORM
