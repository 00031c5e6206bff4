"""Labels of numbers, and the words around a street: whether they name what they stand near.

A noun of telephones (*phone*, *fax*, *Telefon*) names the number behind it, with a few words between. A word
that also means something else (*mobile*, *office*, *hp*) needs a colon or *number*; a verb (*call*, *ring*,
*reach*) leads up to a number that is written as telephone numbers are. Behind a number stand *office*, *fax*,
*is my number*.

Words tell a street from a figure, a title or a year: *Court*, *Drive*, *Way*, *Place* and *Square* are words of every
English text, *place* and *route* of every French text; *Page 12, 5000 Entries* is written like *Vodickova 12, 11000
Praha*. There is no gazetteer.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import pairwise

from dataaudit.scan.detectors.patterns.context import unaccented
from dataaudit.scan.detectors.patterns.entity import Candidate, Evidence

_NOUNS = """
    phone phones telephone telephones telephonenumber phonenumber phoneno telno faxno tel tels telf telp tfno tlf
    tfn cellphone cellphones fax facsimile telefax telefacsimile whatsapp viber voicemail hotline helpline
    landline pager switchboard tollfree handphone smartphone freephone telefon telefone telefono telefonos
    telefones telefonnummer telefonnr telefonnumre rufnummer durchwahl handynummer mobilnummer faxnummer handy
    telephonique telecopie telecopieur telephoner fijo movil moviles celular celulares cellulare cellulari
    telemovel telemoveis telefoon telefoonnummer telefoonnr mobiltelefon mobiltelefonnummer telefonu telefonem
    telefonnyi telefonszam telefoni telefonas telefonin puhelin puhelinnumero puhelinnro puh matkapuhelin
    matkapuh telefaks faks faksi komorka komorkowy mobilni cep gsm simu talefan foonu telepon telpon ponsel
    dien_thoai đien_thoai so_dien_thoai đt sđt fono fonos телефон телефона телефону телефоном телефоны
    телефонов тел моб мобильный мобильного мобилен факс вайбер ватсап whats_app whats_app τηλ τηλεφωνο
    τηλεφωνα τηλεφωνου κιν κινητο φαξ телефонот freecall freefone vxl vaxel kundtjanst kundservice kundeservice
    numero_vert numero_verde numero_azur infolinia טל
"""
_JOINED = (
    "电话 電話 手机 手機 传真 傳真 热线 熱線 携帯 ファックス ファクス フリーダイヤル "
    "致电 致電 拨打 撥打 联系方式 聯絡電話 "
    "전화 휴대폰 핸드폰 팩스 연락처 대표번호 고객센터 "
    "هاتف الهاتف جوال الجوال تلفن موبایل موبايل فاكس واتساب טלפון נייד פקס פון फ़ोन फोन मोबाइल दूरभाष "
    "โทร มือถือ แฟกซ์ ফোন மொபைல் தொலைபேசி"
)
_KINDS = """
    mobile cell cellular mob mobil mobiel mobiele portable port home work office bureau domicile prive private
    privat contact contacto contatto kontakt hp wa sms direct toll_free emergency reception desk hotel
    reservations support sales voice landline oficina casa trabajo trabalho ufficio casa kantoor thuis werk
    contatos emergencia notruf notfall mobitel kom komorkowa stacjonarny praca dom biuro is ev рабочий
    домашний контакт customer_service customer_care customer_support helpdesk infoline kundenservice kundendienst
    service_client servicio_al_cliente atencion_al_cliente atendimento sac ouvidoria klantenservice servizio_clienti
    centralino zentrale telefonzentrale accueil secretariat asiakaspalvelu
    お問い合わせ お問い合わせ先 お問合せ 連絡先 窓口
"""
_CALLS = """
    llamame call calling called calls ring rings phone phoned dial dials dialing dialling dialled text texting
    reach reached contact message whatsapp answer message sms answering telephone fax faxed llame llama llamar
    llamen llamenos llameme llamando marque marcar contactar appelez appeler appelle appel contactez joindre
    joignable composer anrufen anruf anrufe rufen ruf erreichen erreichbar erreichst chiama chiamare chiamate
    chiami chiamaci chiamami contattare contattaci ligue ligar liga liguem contatar bel bellen belt bereikbaar
    ring ringa ringe ringen soita soittaa zadzwon zadzwonic dzwon dzwonic dzwoncie volejte volat zavolejte
    hivja hivd hivjon sunati suna ara arayin arayiniz hubungi goi позвоните позвони звоните звони звонить
    позвонить набери наберите телефонуйте καλεστε
"""
_NUMBER_WORDS = "number|numbers|no|nos|nr|num|nro|nummer|numero|numeros|numer|номер|cislo|szam|n[o°º]|№"
_BETWEEN = r"[ \t:.,=\-–—/|>\"'»”’“*`~()\[\]#：＝（]"
_WORD = r"[^\W\d_]{1,14}"


_NO_TELEPHONE = "".join(
    rf"(?<!{part}p)" for part in ("di", "tri", "allo", "homo", "micro", "mega", "saxo", "head", "ear")
)
"""Behind these, *phone* is a sound of linguistics, or a device."""
_POSTSCRIPT = re.compile(r"(?:\)-?[0-9]*|[0-9]) ?[a-z]\(|\)[a-z]{1,2}\n\Z")
"""Strings and the letters of their operators, as programs write them: ``b(telephone)e(number)i(is) 870 5011 y(``."""


def _any_of(words: str) -> str:
    """Return an alternation of words without accents; ``_`` stands for a space."""
    listed = {unaccented(part.replace("_", " ")) for part in words.split()}
    return "|".join(re.escape(name).replace(r"\ ", r"[\s_-]?") for name in sorted(listed, key=lambda w: (-len(w), w)))


@lru_cache(maxsize=1)
def _patterns() -> tuple[re.Pattern[str], ...]:
    nouns, joined, kinds, calls = (_any_of(words) for words in (_NOUNS, _JOINED, _KINDS, _CALLS))
    numbers = unaccented(_NUMBER_WORDS)
    word = rf"{_BETWEEN}{{1,3}}{_WORD}"
    lead = rf"(?:{word}){{0,4}}{_BETWEEN}{{0,10}}\n?{_BETWEEN}{{0,16}}\+?\Z"
    # The left of a name in code counts as its word: s_phone, home-phone, phoneNumber.
    named = (
        rf"(?:(?<![^\W_])(?:{nouns})|(?<!\S)(?:(?:ph|fon)(?=[.:](?!\.)|\s\Z)|(?:cel|kom|fone)(?=[.:](?!\.)))|(?<=[^\W\d_])_?(?:p{_NO_TELEPHONE}hone|telefon)"
        rf"|(?:{joined}))"
    )
    return (
        re.compile(rf"{named}(?:_?(?:{numbers}|[12]))?(?!\w){lead}"),
        re.compile(rf"(?:{joined})[^\d\n]{{0,10}}\Z"),
        re.compile(
            rf"(?<![\w-])(?:{kinds})(?:[\s_-]?(?:phone|line))?"
            rf"(?:[\s_.-]{{0,2}}(?:{numbers})\b(?:\s{_WORD}){{0,2}}{_BETWEEN}{{0,8}}"
            rf"|{_BETWEEN}{{0,3}}[:：=#]{_BETWEEN}{{0,8}}|-)\Z"
        ),
        re.compile(
            rf"(?<![\w-])(?:{calls})(?:[ \t,\n-]{{1,3}}(?:[^\W\d_]|['’]){{1,14}}\.?){{0,6}}"
            r"[ \t:,]{1,3}\n?[ \t\"'“(]{0,12}\Z"
        ),
        re.compile(
            rf"[\s\-–(\[,/|]{{0,4}}(?:(?:{nouns}|cell|{joined})(?!\w)"
            rf"|(?:office|home|work|mobile|mobil|voice|direct|private|privat|buro|bureau)\s*(?:[-)\],;.|/\\]|\n|\Z))"
        ),
        re.compile(
            r"['\"”)\]]{0,2},? (?:is|was|ist|est|es|e|ar|er|jest) (?:[^\W\d_]{1,12} ){0,3}"
            rf"(?:{nouns}|{numbers}|mobile|cell)(?!\w)"
        ),
    )


_OTHER = re.compile(
    r"[+(]{0,2}\d[\d ().\-/]{4,22}\d(?: ?(?:x|ext\.?|#) ?\d{1,6})?[ \t]?"
    r"(?:[,;/|+&]|or|and|oder|und|ou|et|o|u|y|e|lub|i|или|и)?[ \t\n]{0,3}\Z"
)
"""Another number in a list, before this one."""
_NO_NUMBER_BEFORE = re.compile(
    r"(?:[#@$€£¥^~\\]|\w\[|0x|\b(?:no\. of|bug|bugs|cve|rfc|iso|isbn|issn|doi|posix|pid|line|page|pages|size|bytes|"
    r"version|v|id|part no|part number|"
    r"rev|commit|issue|imei|iccid|imsi|abn|acn|siret|siren|cnpj|sku|upc|ean|isin|model|krs|regon|"
    r"ticket|serial|error|code|port|zip|plz)[ #:=.(\\-]{0,3}|[a-z]{2}\d*-|[^\s:]=[ \t]?<?|://\S*|\d\.?)\Z"
)
_OF_SOMETHING = re.compile(
    r"(?<![^\W_])(?:ids?|identifiers?|uuid|"
    r"(?<!area )(?<!country )(?<!dial )(?<!dialling )(?<!dialing )(?<!city )codes?|rates?|resolutions?|"
    r"sizes?|counts?|counters?|models?|versions?|firmware|intervals?|index|indices|indexes|pressures?|serial|poles?|units?|bytes|bits|widths?|"
    r"heights?|lengths?|offsets?|speeds?|modems?|timeouts?|frequency|frequencies|temperatures?|"
    r"durations?|frames?|sequences?|areas?(?! code)|angles?|prices?|costs?|scores?|"
    r"seeds?|hash|hashes|topology|ratios?|grids?|voltages?|capacity|volume|weights?|radius|stack|buffers?|cache|entries|latency|cycles)(?![^\W_])"
)
"""A word behind a label that names another number: *phone model id*, *contact rate*, *call stack*."""
_NO_NUMBER_AFTER = re.compile(
    r"-?(?:%|tel\b|[ \t]?(?:bytes?|bits?|[kmg]?hz|[kmg]i?b|ms|us|ns|sec|seconds?|minutes?|hours?|baud|bps|"
    r"usd|eur|dollars?|euros?|people|users?|"
    r"households|voters|families|respondents|cells|entries|records|rows|nodes|cycles|points|times|pages|"
    r"lines|items|pixels?|px)\b|[ \t]?[€$£¥<>{}=*^~])"
)
_KEYED = re.compile(
    r"(?:tel:|phone=|wa\.me/|callto:|sms:|[a-z_-]*(?:phone|telefon|mobile|fax)"
    r"(?![a-z_ -]{0,12}(?:hash|count|size|model))[a-z_ -]*[\"']?\s?[=:>]\s?[\"'<(]{0,2})\+?\Z"
)
"""Written by machines: a URI of a number, an attribute, a column."""
_COUNTED = re.compile(r"[0-9]{1,2}(?:[ \t][0-9]{1,2}){3,}\Z")


def is_written_as_phone(text: str) -> bool:
    """Tell whether digits are grouped as those of telephone numbers are, or begin with ``+``, ``00`` or a trunk's 0."""
    groups = re.findall(r"[0-9]+", text)
    if text.startswith(("+", "(")):
        return True
    digits = sum(map(len, groups))
    if _COUNTED.match(text) and all(int(b) - int(a) in {0, 1} for a, b in pairwise(groups)):
        return False
    if len(groups) == 1 or [len(group) for group in groups].count(1) > 2:
        return False
    if text.startswith("0"):
        return digits >= 7
    if len(groups) == 2:
        return 7 <= digits <= 12 and [len(group) for group in groups] not in ([5, 4], [5, 5]) and len(groups[0]) > 1
    least = 6 if "." not in text else 7
    return least <= digits <= 15 and max(map(len, groups)) <= 5


def names_phone(candidate: Candidate) -> bool:
    """Tell whether the words around a number are the label of a telephone number."""
    before, after = unaccented(candidate.before), unaccented(candidate.after)
    if _labels(_KEYED, before):
        return True
    if _NO_NUMBER_AFTER.match(after) or _POSTSCRIPT.search(before):
        return False
    for _ in range(3):
        shorter = _OTHER.sub("", before)
        if shorter == before:
            break
        before = shorter
    digits = len(re.sub(r"[^0-9]", "", candidate.text))
    shaped = is_written_as_phone(candidate.text)
    long = shaped or digits >= 9
    if _is_labelled(before, long=long):
        return True
    if _NO_NUMBER_BEFORE.search(before[-24:]):
        return False
    _, _, _, _, type_behind, is_number = _patterns()
    alone = before.endswith("\n") and re.search(r"[0-9][ .-][0-9]", candidate.text)
    behind = (long or alone) and (type_behind.match(after) or is_number.match(after))
    return bool(behind) or _is_called(before, shaped=shaped, digits=digits)


def _is_labelled(before: str, *, long: bool) -> bool:
    """Tell whether a word that names telephones stands before a number; a weaker word suffices for a long number."""
    noun, joined, kind, _, _, _ = _patterns()
    if joined.search(before) or (long and (_labels(kind, before) or _OWN.search(before))):
        return True
    return _labels(noun, before) and not _NO_NUMBER_BEFORE.search(re.sub(r"[\s\"'(]+\Z", "", before)[-24:])


def _is_called(before: str, *, shaped: bool, digits: int) -> bool:
    """Tell whether somebody is asked to call a number that may be a telephone's."""
    called = _patterns()[3].search(before)
    if called is None or (
        _BARE_NOUN.match(called[0])
        or _OF_SOMETHING.search(called[0])
        or _NO_TELEPHONE_CALL.search(before, 0, called.start())
    ):
        return False
    return shaped or (9 <= digits <= 13 and _ASKED.search(called[0]) is not None)


def _labels(label: re.Pattern[str], before: str) -> bool:
    """Tell whether a label stands before a number, with no word behind it that names another number."""
    match = label.search(before)
    return match is not None and _OF_SOMETHING.search(match[0]) is None


_OWN = re.compile(
    r"\b(?:my|his|her|our|your|their|the|mein|meine|mon|mi|mio|meu|mijn) (?:new |own |direct )?"
    r"(?:cell|mobile|number|nummer|numero|mobil|portable|handy|cellulare|celular|movil|mobiel) "
    r"(?:number )?(?:is|was|ist|est|es|e)[ :]{1,2}\Z"
)
_BARE_NOUN = re.compile(r"(?:text|message|answer|answering|sms|reached|ara)[ :\n]+\Z")
"""Words that are seldom verbs where digits follow at once."""
_NO_TELEPHONE_CALL = re.compile(
    r"\b(?:system|function|method|procedure|subroutine|library|api|rpc|uuid|kernel|remote|virtual|"
    r"recursive|async|http|roll|margin)[ _-]\Z"
)
"""Before a *call* of a program."""
_ASKED = re.compile(
    r"\A(?:dial|ring|phone|text|whatsapp|fax|zadzwon|anrufen|ligue|bel|ring|soita|volejte)[ :]+\Z"
    r"|\b(?:me|us|him|her|them|now|free|team|office|service|at|on|under|unter|mich|uns|moi|nous|al|au|o|para|mij|ons|op|meg|mig|pa|numer|pod|na|"
    r"nr|numero|numeroon|cislo|la|мне|нам|по|номеру)[ :]+\Z|\Acall[ ]\Z"
)
"""A verb that may stand before digits in one piece."""
_UP_TO = (
    r"(?:[ \t_:]{1,2}(?!(?:start|end|range)(?![^\W\d_]))[^\W\d_]{1,12}\.?){0,4}(?:[ \t_]{0,3}[:：=#(|>*\"'’.,-]){0,6}"
    r"[ \t]{0,4}\n?[ \t]{0,8}[\"'#(]?\Z"
)
"""Between a label and its number: up to four words and the signs of an assignment."""
_BIRTH = re.compile(
    r"(?<![^\W_])(?:born|birth(?:[ _-]?(?:date|day))?\w*|date[ _-]?of[ _-]?birth|d\.?o\.?b|bday(?![_.(])|"
    r"geb(?:oren\w*|urts?\w*)?|"
    r"n(?:é|ée) le|naissance|nacimiento|nacid[oa]|nació|nascimento|nascid[oa]|nasceu|nat[oa] (?:il|a)|nascita|"
    r"geboorte\w*|född\w*|født|fødsel\w*|syntym\w*|urodz\w*|ur\.|narozen\w*|született|născut\w*|doğum\w*|"
    r"дата рождения|родил\w*|роден\w*|народ\w*|γεννη\w*|出生\w*|生日|生年月日|誕生日|생년월일|تاريخ الميلاد|जन्म\w*|"
    r"생일|วันเกิด|ngày sinh|(?:tanggal )?lahir)" + _UP_TO
)
_LICENCE = re.compile(
    r"(?<![^\W_])(?:(?:drivers?['’]?s?|driving)[ _-]?licen[cs]es?|driving permit|learner['’]?s permit|"
    r"dl ?(?:#|no|number)|dmv(?![.\w])|(?:my|his|her|their|your|patient['’]?s) licen[cs]e (?:number|no|#))" + _UP_TO
)
_PASSPORT = re.compile(
    r"(?<![^\W_])(?:passports?|passeport\w*|reisepass\w*|passnummer|pasaporte?\w*|passaport\w*|paspoort\w*|"
    r"paszport\w*|pass nr|паспорт\w*|护照\w*|護照\w*|パスポート\w*|旅券\w*|여권\w*|جواز(?: السفر)?)(?:['’]s)?" + _UP_TO
)
_ACCOUNT = re.compile(
    r"(?<![^\W_])(?:(?:bank|checking|savings?|debit|deposit)[ _-]{0,2}(?:account|acct)s?|direct deposit|"
    r"(?<!aws )(?<!user )(?<!cloud )(?<!project )(?:account|acct)s?\.?[ _]{0,2}(?:number|no|nr|num|#)|acct\.?(?![\w-]))"
    + _UP_TO
)


def names_birth(candidate: Candidate) -> bool:
    """Tell whether a date is labelled as a day of birth."""
    return _BIRTH.search(candidate.before) is not None


def names_licence(candidate: Candidate) -> bool:
    """Tell whether a number is labelled as that of a person's licence: software and bodies have licences too."""
    return _LICENCE.search(candidate.before) is not None


def names_passport(candidate: Candidate) -> bool:
    """Tell whether a number is labelled as that of a passport: machines and programs have that name too."""
    return _PASSPORT.search(candidate.before) is not None


def names_account(candidate: Candidate) -> bool:
    """Tell whether a number is labelled as that of an account at a bank."""
    return _ACCOUNT.search(candidate.before) is not None


_MAIL = re.compile(
    r"(?<![^\W_])(?:e-?mails?|mails?|mailto|courriels?|correos?|contact|contacto|kontakt|poczta|posta|почта|邮箱|郵箱|メール|이메일)"
    r"[\s_-]?(?:addresses|address|adresse|addr|adres|id|me|us|at|to|is|electronico)?[ \t]{0,2}[:=：>(<\"' \t]{1,6}\Z"
)


def names_email(candidate: Candidate) -> bool:
    """Tell whether a label stands right before an address."""
    return _MAIL.search(candidate.before) is not None


_MONTHS = (
    "january|february|march|april|may|june|july|august|september|october|november|december|jan|feb|mar|apr|jun|jul|aug|"
    "sept?|oct|nov|dec"
)
_COUNTED_WORDS = (
    "act|algorithm|android|apollo|appendix|article|bible|case|catch|chapter|chart|class|column|day|diagram|"
    "edition|episode|equation|example|exercise|exhibit|figure|fig|firefox|game|gpt|grade|group|ios|iphone|issue|item|"
    "java|layer|lemma|lesson|level|lines?|mac ?os|model|module|office|pages?|paragraph|part|phase|php|problem|python|"
    "question|round|row|rule|scene|season|section|series|slide|stage|step|table|task|test|theorem|tier|title|top|track|"
    "type|ubuntu|unicode|version|vol|volume|week|windows|year"
)
_NUMBERED = re.compile(rf"\b(?:{_COUNTED_WORDS})s?[. ]{{1,2}}\Z")
"""A counted noun right before its number."""
_LAST_COUNTED = re.compile(rf"(?:\A|[\s.])(?:{_COUNTED_WORDS}|{_MONTHS})\.? [0-9]")
_THINGS = re.compile(
    r" (?:bytes|cells|copies|days|documents|entries|examples|files|hours|images|items|lines|members|miles|months|pages|"
    r"participants|patients|people|photos|pieces|points|records|rows|samples|sentences|steps|students|tokens|units|"
    r"updates|users|verbs|viewers|visitors|votes|words|years)\Z"
)
"""Nouns of large numbers, in place of a town."""
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
"""First words, in lower case, of other things than streets."""
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
    """Check ``15 Millicent Drive``: no figure, no date, no year of a sentence, no hard drive and no supreme court."""
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
    """Check ``429 Berry Valleys``: a flat or a town's code is strong; without, it stands in a line or behind *at*."""
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
    """Check ``Lagoa da Cunha, 46``: no year, no date, nothing that is counted behind it."""
    year = _YEAR.search(candidate.text) and not candidate.context
    return Evidence.REJECTED if year or _COUNTS.match(candidate.after) else Evidence.FORM


_NAMED_YEAR = re.compile(r"[^,.#:] (?:19|20)[0-9]{2}\Z")
_IN_USE = re.compile(r"[ \t]{0,2}(?:,|[-–] ?[0-9]|\n)")
"""Behind a house number: a town, a floor."""
_ABBREVIATED = re.compile(r"\A(?:via|largo|plaza|camino|corso|strada|al\.) (?P<name>[A-Z]{2,6}) [0-9]", re.IGNORECASE)
_ROMAN = re.compile(r"[IVXLCDM]+\Z")
_PROGRAMS = re.compile(
    r"\Avia (?:android|bluetooth|chrome|email|ethernet|facebook|firefox|gmail|java|linux|office|outlook|php|python|"
    r"rail|route|twitter|whatsapp|wi-?fi|windows|youtube) [0-9]"
)
_REFERENCE = re.compile(r"\b(?:et|import) \Z")


def kind_first(candidate: Candidate) -> Evidence:
    """Check ``Via Garibaldi 8``: no *via USB 3*, no *et al. Nature 518*, no title with a year behind it."""
    text = candidate.text
    abbreviated = _ABBREVIATED.match(text)
    name = abbreviated["name"] if abbreviated else ""
    rejected = (
        (_REFERENCE.search(candidate.before) or _PROGRAMS.match(text.lower()))
        or (name.isupper() and not text[:3].isupper() and not _ROMAN.match(name))
        or (_NAMED_YEAR.search(text) and not candidate.context and not _IN_USE.match(candidate.after))
    )
    return Evidence.REJECTED if rejected else Evidence.FORM


_FRENCH_WORD = re.compile(r"[0-9]+ (?:place|route|square|passage|cours|voie|esplanade) [A-Z\xc3]")
"""A number, a word of English or of lessons, and a name at once: no comma, no *bis*, no *de*."""
_POSTCODE = re.compile(r"[ \t]{0,2}[,\n]?[ \t-]{0,3}[0-9]{4,5}(?![0-9])")


def french(candidate: Candidate) -> Evidence:
    """Check ``48 place Bellecour``: a text like *3 route handlers* needs a postcode or a context word."""
    plain = _FRENCH_WORD.match(candidate.text) and not candidate.context
    return Evidence.REJECTED if plain and not _POSTCODE.match(candidate.after) else Evidence.FORM


def before_a_town(candidate: Candidate) -> Evidence:
    """Check ``Vodickova 12, 11000 Praha``: no counted thing before the first number, no thing behind the second."""
    text = " ".join(candidate.text.lower().split())
    return Evidence.REJECTED if _LAST_COUNTED.search(text) or _THINGS.search(text) else Evidence.FORM
