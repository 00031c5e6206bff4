"""Checks of e-mail addresses, network addresses (IPv4, IPv6, MAC) and phone numbers; which of them are nobody's.

Phone numbers are checked with the numbering plans of ``phonenumbers``, without its parser: ``is_valid_number`` takes 50
to 100 microseconds, and a national number has to be tried in many regions. A number is in use when its national digits
match a pattern of a region's kinds of numbers (fixed line, mobile, ...). These patterns are joined into one regular
expression for each country code.
"""

from __future__ import annotations

import ipaddress
import re
from functools import lru_cache
from html import unescape
from typing import Any
from unicodedata import category
from urllib.parse import unquote

from dataaudit.scan.detectors.patterns.entity import Candidate, Evidence
from dataaudit.scan.detectors.pii.payments import digits_of, one_digit

_COUNTRIES = (
    "ac ad ae af ag ai al am ao aq ar as at au aw ax az ba bb bd be bf bg bh bi bj bm bn bo br bs bt bw by bz ca "
    "cc cd cf cg ch ci ck cl cm cn co cr cu cv cw cx cy cz de dj dk dm do dz ec ee eg er es et eu fi fj fk fm fo "
    "fr ga gd ge gf gg gh gi gl gm gn gp gq gr gs gt gu gw gy hk hm hn hr ht hu id ie il im in io iq ir is it je "
    "jm jo jp ke kg kh ki km kn kp kr kw ky kz la lb lc li lk lr ls lt lu lv ly ma mc md me mg mh mk ml mm mn mo "
    "mp mq mr ms mt mu mv mw mx my mz na nc ne nf ng ni nl no np nr nu nz om pa pe pf pg ph pk pl pm pn pr ps pt "
    "pw py qa re ro rs ru rw sa sb sc sd se sg sh si sk sl sm sn so sr ss st su sv sx sy sz tc td tf tg th tj tk "
    "tl tm tn to tr tt tv tw tz ua ug uk us uy uz va vc ve vg vi vn vu wf ws ye yt za zm zw"
)
_GENERIC = (
    "com org net edu gov mil int arpa info biz name pro aero coop museum jobs mobi travel tel cat asia post xxx "
    "app dev page blog shop store online site website web tech cloud email mail live life world today news media "
    "agency digital solutions services company business group team global network systems software studio design "
    "art photography club space zone center academy school university foundation institute clinic health care "
    "doctor dental legal law lawyer finance financial bank insurance capital fund money consulting management "
    "marketing support help expert guru ninja wiki host hosting domains xyz top icu vip win bid loan work works "
    "link click fun games game bet casino party social community family fashion style beauty fit fitness yoga run "
    "bike football golf hockey tennis ski surf diet food pizza restaurant cafe bar pub wine beer coffee recipes "
    "kitchen house homes estate realty properties apartments rent land garden build builders construction "
    "engineering energy solar green eco bio organic farm horse dog pet vet church faith bible band music audio "
    "film movie video tv theater show events tickets tours vacations voyage cruises flights hotel hotels holiday "
    "camp auto car cars taxi limo parts repair tools supply supplies industries international ltd llc inc gmbh "
    "sarl srl berlin london paris amsterdam wien hamburg koeln cologne bayern nyc vegas miami boston tokyo osaka "
    "kyoto moscow istanbul sydney melbourne quebec scot wales cymru irish bzh corsica brussels vlaanderen gent "
    "swiss tirol eus gal cat madrid barcelona africa lat rio google apple amazon microsoft bmw sony xin wang ren "
    "love one"
)
TOP_LEVEL = frozenset(f"{_COUNTRIES} {_GENERIC}".split())
"""Country codes and the common generic domains of IANA's list: another ending makes no strong evidence."""
_FILES_LIST = (
    "png jpg jpeg gif svg webp bmp ico css js jsx ts tsx mjs json xml html htm yaml yml toml ini cfg conf txt "
    "rst log pdf doc docx zip gz tgz jar war exe dll lib bin deb rpm whl egg class java cpp hpp cxx rb go "
    "php cs swift kt service socket target mount timer scope slice device path service lock tmp bak orig patch "
    "diff"
)
_FILES = frozenset(_FILES_LIST.split())
_SPECIAL = frozenset(("test", "invalid", "example", "localhost", "local", "localdomain", "internal", "lan", "onion"))
_PLACEHOLDER_DOMAINS_LIST = (
    "domain.com domain.tld mydomain.com yourdomain.com your-domain.com somedomain.com server.com myserver.com "
    "host.com hostname.com myhost.com site.com mysite.com yoursite.com website.com company.com mycompany.com "
    "yourcompany.com foo.com foo.org foo.net foo.bar bar.com bar.org baz.com foobar.com acme.com somewhere.com "
    "nowhere.com test.com email.tld mail.tld xyz.com abc.com xxx.com aaa.com"
)
_PLACEHOLDER_DOMAINS = frozenset(_PLACEHOLDER_DOMAINS_LIST.split())
_NOBODY = frozenset(("git", "noreply", "no-reply", "donotreply", "do-not-reply", "mailer-daemon"))
_ID_PART = re.compile(
    r"[0-9]{8,}[.-]|(?:.*[.+-])?[0-9]{10,}[.-]|(?:.*[.$+_-])?(?=[0-9a-f]*[0-9])[0-9a-f]{16,}(?:[.$+_-]|\Z)|"
    r"[0-9a-f]{8}-[0-9a-f]{4}-|.*\.fsf(?:_-_)?\Z|.*\.(?:ln[0-9]|wl-)|(?:al)?pine\.|[0-9a-f]{7,8}\.[0-9]{5,8}\Z|"
    r"e1[0-9a-z]{5}-[0-9a-z]{6}-[0-9a-z]{2,}\Z|.*javamail|.*git-send-email|"
    r"(?:pull|cover|tip|v[0-9]+)[.-](?=[0-9a-f-]*[0-9])[0-9a-f]+[.-]|.*(?:-[0-9]+){2}-[a-z.]*\Z|"
    r"[a-p]{24,28}\.|[0-9]{3,6}\.[0-9]{9,10}\Z"
)
"""Local parts that programs make: times, counters, random letters, the marks of Gnus, Pine, Exim, Java, git, exmh."""
_ID_HOSTS = (".prod.outlook.com", ".exchangelabs.com", "mail.gmail.com", "mx.google.com", "messagingengine.com")
_ID_BEFORE = re.compile(
    r"(?:(?:message|content|references?|thread|x-[a-z-]*message)[\s_-]?ids?\b|\bmsg-?id\b|in-reply-to\b|\b(?:mid|cid|news):)"
    r"[\s:=\"']*(?:<[^<>\s]*>[\s,]*)*[<(\"']?\Z|\breferences?:\s*(?:<[^<>\s]*>[\s,]*)*<\Z|"
    r"(?:lore\.kernel\.org|marc\.info|lkml\.kernel\.org|mail-archive|mail\.gnu\.org|"
    r"public-inbox[\w.-]*|postgr\.es|message-id|msgid|mid)/[^\s@<>]{0,60}\Z|\bwith e?smtps?a? id\s+<\Z"
)
_ID_WORDS = ("id", "/", "reply", "reference", "news:")
"""One of them stands in all that ``_ID_BEFORE`` matches, which takes a sixth of the time of a check to see."""
_BRACKETS = re.compile(r"[ \[({<]")
_LOCAL = re.compile(r"[^\s<>:;,\"()\[\]{}\\]+|\\?\{[\w.,\s-]+\\?\}")
"""A name, or several in braces."""
MAX_LOCAL = 200
"""Letters before the ``@`` at most: RFC 5321 allows 64, each of which may be spelled."""
MAX_DOMAIN = 253
"""Of a host's name (RFC 1035)."""
_TURNS = re.compile(r"(?<=[a-z])(?=[0-9])|(?<=[0-9])(?=[a-z])")
_IN_URL = re.compile(r"://[^\s/@]*\Z")
"""Before the password of a URL, which the candidate then begins with."""
_MASK = re.compile(r"[^\s<]![~*]?(?:[ni]=)?\Z|[\s(\[]~\Z|[(\[][ni]=\Z|\bident:\Z|\$\Z")
"""Masks of chats (``nick!user@host``), paths of old mail (``host!user``), an ident server's word, a variable."""
_CALL = re.compile(r"\b(?:sips?|xmpp|im|h323|jabber|acct):\Z")
"""Schemes of addresses that receive no mail."""
_JOINED = re.compile(r"[)\]] has (?:joined|quit|left)\b")
_NOISE = re.compile(r"[!#$*^`+~|@]")
_LOGIN = re.compile(r"\b(?:ssh|scp|sftp|rsync|mosh|ssh-copy-id)(?:\s+-{1,2}[\w=-]+(?:\s+[0-9]+)?){0,3}\s+\Z")
_PATH_AFTER = re.compile(r":[~/]")
_ALGORITHM = re.compile(
    r"(?:.*-)?(?:sha[0-9]*|aes[0-9]+|hmac|umac|ssh|ecdsa|ed25519|rsa|dss|cert|gcm|etm|poly1305|zlib|curve25519|nistp[0-9]+|v0[01])"
)
_ALGORITHM_HOSTS = frozenset(("openssh.com", "libssh.org", "ssh.com", "lysator.liu.se"))
_KEYWORDS = frozenset(("this", "super", "return", "break", "continue", "self"))
_ESCAPED_AT = re.compile(r"\\{1,2}(?:u0040|x40|@)")
_AT = re.compile(
    r"(?<!\s)\s*+[\[({<]\s*+(?:at|@|arrob[ae]|arobase|chez|bei|ma[lł]pa|chiocciola|zavin[aá][cč]|ät|kukac|собака|собачка)"
    r"\s*+[\])}>]\s*+|(?<!\s)\s++(?:at|@)\s++",
    re.IGNORECASE,
)
_POINT = re.compile(
    r"(?<!\s)\s*+[\[({<]\s*+(?:dot|\.|punto|punkt|point|ponto|punt|kropka|te[cč]ka|точка)\s*+[\])}>]\s*+"
    r"|(?<!\s)\s++(?:dot|\.)\s++",
    re.IGNORECASE,
)


def is_message_id(local: str, domain: str, before: str) -> bool:
    """Tell whether ``local@domain`` names a message: by its header, an archive's URL, or the form of its parts."""
    named = any(part in before for part in _ID_WORDS) and _ID_BEFORE.search(before)
    if named or _ID_PART.match(local) or domain.endswith(_ID_HOSTS):
        return True
    return len(local) >= 14 and len(_TURNS.findall(local)) >= 5


def plain_email(text: str) -> str:
    """Return an address with ``@`` and points in place of their spellings."""
    written = text.encode("latin-1").decode("utf-8", "replace").replace("\\-", "-")
    if "%" in written or "&" in written or "\\" in written:
        written = _ESCAPED_AT.sub("@", unescape(unquote(unquote(written))))
    if _BRACKETS.search(written):
        written = _POINT.sub(".", _AT.sub("@", written, count=1))
    return written


def email(candidate: Candidate) -> Evidence:
    """Reject Message-IDs, file names, broken parts; a known top-level domain is strong, but not in a login."""
    return _email(candidate.text, candidate.before, candidate.after)


@lru_cache(maxsize=1 << 14)
def _email(text: str, before: str, after: str) -> Evidence:
    """Do the same; of a corpus of pages with one head, half of the addresses stand between the same words."""
    local, _, domain = plain_email(text).lower().rpartition("@")
    labels = domain.split(".")
    long = len(local) > MAX_LOCAL or len(domain) > MAX_DOMAIN
    rejected = (
        (long or not _LOCAL.fullmatch(local) or local.startswith(".") or local.endswith(".") or ".." in local)
        or (labels[-1] in _FILES or any(label.startswith("-") or label.endswith("-") for label in labels))
        or (local in _KEYWORDS or (domain in _ALGORITHM_HOSTS and _ALGORITHM.match(local)))
        or not all(map(_is_label, labels))
        or (before.endswith("@") or is_message_id(local, domain, before))  # @name@host is a name in the fediverse
        or (_MASK.search(before[-8:]) or _JOINED.match(after) or _is_noise(text, before, after))
        or labels[0] in {"and", "or"}
    )
    if rejected:
        return Evidence.REJECTED
    login = _IN_URL.search(before) or _LOGIN.search(before) or _PATH_AFTER.match(after) or _CALL.search(before[-8:])
    known = labels[-1] in TOP_LEVEL or labels[-1].startswith("xn--") or not labels[-1].isascii()
    return Evidence.STRONG if known and not login else Evidence.FORM


def _is_noise(text: str, before: str, after: str) -> bool:
    """Whether letters of both cases stand amid signs without a blank, as in a picture that is written in base 85."""
    if text.islower() or text.isupper():
        return False
    around = before[-24:] + after[:16]
    return " " not in around and len(_NOISE.findall(around)) >= 3


def _is_label(label: str) -> bool:
    """Whether a label of a host's name is letters, digits and hyphens; beyond ASCII, letters and their marks."""
    return label.isascii() or all(name.isalnum() or name == "-" or category(name) in {"Mn", "Mc"} for name in label)


def reserved_email(candidate: Candidate) -> bool:
    """Whether nobody can have it (RFC 2606, RFC 6761), a machine has it, or it is a placeholder."""
    local, _, domain = plain_email(candidate.text).lower().rpartition("@")
    labels = domain.split(".")
    if labels[-1] in _SPECIAL or (
        len(labels) > 1 and labels[-2] == "example" and labels[-1] in {"com", "org", "net", "edu"}
    ):
        return True
    return (
        domain in _PLACEHOLDER_DOMAINS
        or local in _NOBODY
        or (candidate.after.startswith(":") and local in {"hg", "svn"})
    )


_VERSION = re.compile(
    r"(?:\b(?:versions?|ver|v|vers|releases?|rev|revisions?|build|firmware|driver|kernel|linux|windows|chrome|chromium|"
    r"firefox|safari|edge|mysql|openssl|oracle|python|update|upgrade|patch|sdk|api|assemblyversion|fileversion|section|"
    r"chapter|since|before|after|than)[\s:=\"'(/_-]*|[a-z]/|[a-z]-)\Z"
)
_VERSION_AFTER = re.compile(r"\s?(?:-?(?:rc|alpha|beta|pre|dev|release|final|snapshot)\b|\s(?:release|version)\b)")

_ASSIGNED = ipaddress.IPv6Network("2000::/3")
"""The global unicast addresses of IPv6 (IANA)."""
_LABEL = re.compile(r"\b(?:ips?|ip_?addr(?:ess)?|addr(?:ess)?|ping|dns|inet|resolver|nameserver)\b")


@lru_cache(maxsize=4096)
def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def ipv4(candidate: Candidate) -> Evidence:
    """Reject other texts than dotted quads, which show nothing but their form."""
    return Evidence.REJECTED if _address(candidate.text) is None else Evidence.FORM


def ipv6(candidate: Candidate) -> Evidence:
    """Reject texts that RFC 4291 does not allow, and eight pairs (EUI-64, fingerprints).

    Eight groups, or four beside ``::``, are strong evidence.
    """
    text = candidate.text
    if _address(text) is None:
        return Evidence.REJECTED
    groups = [group for group in text.split(":") if group]
    if len(groups) < 3 and not text.lower().startswith(("fe80:", "2001:", "fd", "::ffff:", "2a", "26", "ff0")):
        return Evidence.REJECTED
    if len(groups) == 8 and all(len(group) <= 2 for group in groups):
        return Evidence.REJECTED
    wide = sum(len(group) for group in groups) >= 8
    if len(groups) >= 4 and wide:
        return Evidence.STRONG
    return Evidence.FORM if any(map(str.isdigit, text)) else Evidence.REJECTED


def reserved_ip(candidate: Candidate) -> bool:
    """Whether it is private, loopback, for documentation (RFC 5737, 3849), unassigned or looks like a version."""
    address = _address(candidate.text)
    if address is None or not address.is_global or address.is_multicast:
        return True
    if isinstance(address, ipaddress.IPv6Address):
        return address.ipv4_mapped is None and address not in _ASSIGNED
    if _LABEL.search(candidate.before):
        return False
    if all(int(part) < 40 for part in candidate.text.split(".")):
        return True
    return bool(_VERSION.search(candidate.before) or _VERSION_AFTER.match(candidate.after))


def mac(candidate: Candidate) -> Evidence:
    """Reject the broadcast address and fillers; dumps of bytes have the form of six pairs, too."""
    digits = re.sub(r"[^0-9a-f]", "", candidate.text.lower())
    return Evidence.REJECTED if len(set(digits)) == 1 else Evidence.FORM


def reserved_mac(candidate: Candidate) -> bool:
    """Whether it is for documentation (RFC 7042), locally administered, multicast or a run of digits."""
    digits = re.sub(r"[^0-9a-f]", "", candidate.text.lower())
    first = int(digits[:2], 16)
    runs = "0123456789abcdef0123456789abcdef", "fedcba9876543210", "00112233445566778899aabbccddeeff", "aabbccddeeff"
    return bool(first & 3) or digits.startswith(("00005e", "000000")) or any(digits in run for run in runs)


_REGIONS_LIST = "US GB DE FR IN BR JP CN ES IT AU MX RU NL PL SE KR TR ZA ID CH AR NG IL"
REGIONS = tuple(_REGIONS_LIST.split())
"""Regions in which a number without a country's code is tried, those that write most first."""
_AMERICAN_FICTION = re.compile(
    r"[( ]{0,2}(?:(?:\+|00|011[ .-]?)?1[ .()/-]{0,3})?"
    r"(?:555[ .()/-]{0,3}[0-9]{3}[ .-]?[0-9]{4}|(?:[2-9][0-9]{2}[ .()/-]{0,3})?555[ .-]?01[0-9]{2})(?![ .-]?[0-9])"
)
_BRITISH_FICTION = re.compile(r"(?:44|0044|0)0?(?:7700900|2079460|1632960)")
_EXTENSION = re.compile(r"\s?(?:x|ext\.?|extension|#)\s?[0-9]{1,6}\Z", re.IGNORECASE)
_DATE = re.compile(
    r"(?:(?:19|20)[0-9]{2}[-./ ][0-9]{1,2}[-./ ][0-9]{1,2}|[0-9]{1,2}[-./ ][0-9]{1,2}[-./ ](?:19|20)[0-9]{2}|"
    r"(?:19|20)[0-9]{2}\s?[-/ ]\s?(?:19|20)[0-9]{2}|(?:19|20)[0-9]{6})(?![0-9])"
)
_STAMP = re.compile(
    r"(?:19|20)[0-9]{2}(?:0[1-9]|1[0-2])(?:[0-2][0-9]|3[01])(?:[0-9]{4}|[0-9]{6})(?:\.[0-9]+)?\Z"
    r"|(?:19|20)[0-9]{2} [-+][0-9]{4}\Z"
)
"""Year to minute or second, or a year and the zone of a time."""
_DECIMAL = re.compile(r"\+[0-9]{4,}\.[0-9]+\Z|\+[0-8][0-9]{3}(?:[0-9]{2})?-[01][0-9]{4}(?:[0-9]{2})?\Z")
"""Numbers with a point, and places on a map (ISO 6709)."""
_THOUSANDS = re.compile(r"\+[0-9]{1,3}(?:\.[0-9]{3})*\Z")
_OPERAND_BEFORE = re.compile(r"[)\]]\Z|(?:\A|[\s,;(\[])-[0-9]{4,}[,;]\s*\Z")
_OPERAND_AFTER = re.compile(r"[*^%]|<<|>>|&[0-9]|[,;]\s*-[0-9]{4}")
"""Behind a signed number in one piece in arithmetic and in lists of constants."""
_NUMBER = r"-?[0-9]{1,6}(?:\.[0-9]+)?"
_ROW_BEFORE = re.compile(rf"(?:\A|[\s\[(]){_NUMBER}[ \t]{{1,4}}\Z")
_ROW_AFTER = re.compile(rf"[ \t]{{1,4}}{_NUMBER}(?:[\s\])]|\Z)")
_TABLE = re.compile(rf"(?:\A|[\s\[(])(?:{_NUMBER}[ \t]{{1,4}}){{2}}\Z")
_QUAD = re.compile(
    r"(?!0[1-9][0-9]\.)[0-9]{1,3}(?:\.[0-9]{1,3}){3}\Z|[0-9]{1,2}\.[0-9]{1,3}\.[0-9]{3}\Z|[0-9]{1,5}\.[0-9]+\Z|[0-9]{6,}\.[0-9]{1,3}\Z|"
    r"[01]-[0-9]{5}\Z|[0-9]{14,}\Z"
)
"""Addresses of machines (no leading zero), versions, numbers with a point, ranges from a single digit; a counter."""
_HOST = re.compile(r"[0-9]{1,3}(?:-[0-9]{1,3}){3}\.[a-z]")
"""The name of a machine that holds its address."""


def without_extension(text: str) -> str:
    """Return the number without ``x123``, ``ext. 123``."""
    return _EXTENSION.sub("", text)


def international(candidate: Candidate) -> Evidence:
    """Check a number with ``+`` or ``00``: strong when its country's plan has it in use, the form by its length."""
    plain = without_extension(candidate.text)
    digits = digits_of(plain)
    plus = plain.lstrip("( ").startswith("+")
    if not plus:
        digits = digits.removeprefix("011") if digits.startswith("011") else digits.removeprefix("00")
    before, after = candidate.before, candidate.after
    figure = _DECIMAL.match(plain) or (not candidate.context and _THOUSANDS.match(plain))
    if not 7 <= len(digits) <= 16 or one_digit(digits[2:]) or figure:
        return Evidence.REJECTED
    if plain[1:].isdigit() and (_OPERAND_BEFORE.search(before[-16:]) or _OPERAND_AFTER.match(after)):
        return Evidence.REJECTED
    used = in_use(digits.replace("0", "", 1) if "(0)" in plain else digits)
    if used and not candidate.context and "+" not in before[-24:] and _TABLE.search(before[-24:]):
        return Evidence.FORM
    if used:
        return Evidence.STRONG if plus or not plain.isdigit() else Evidence.WEAK
    unknown = plain.isdigit() or (used is None and not candidate.context)
    return Evidence.REJECTED if unknown else Evidence.FORM


def national(candidate: Candidate) -> Evidence:
    """Check a number without a country's code; dates and dotted quads are rejected.

    The plans of :data:`REGIONS` do not count: nine of ten random numbers of 7 to 12 digits are in use in some region.
    """
    plain = without_extension(candidate.text).strip()
    if "(" in plain and ")" not in plain:
        plain = plain.replace("(", "")
    digits = digits_of(plain)
    groups = re.findall(r"[0-9]+", plain)
    rejected = (
        (not 6 <= len(digits) <= 15 or one_digit(digits))
        or (_DATE.match(plain) or _QUAD.match(plain) or _STAMP.match(plain) or _HOST.match(plain + candidate.after))
        or (_ROW_BEFORE.search(candidate.before[-16:]) and _ROW_AFTER.match(candidate.after))
        or ("." in plain and " " in plain.replace(") ", ")"))
        or 3 < sum(len(group) == 1 for group in groups) < len(groups)
        or ([len(group) for group in groups] == [3, 2, 4] and " " not in plain)
        or (_is_range(plain, groups) or groups.count("00") > 1)
    )
    return Evidence.REJECTED if rejected else Evidence.FORM


def _is_range(plain: str, groups: list[str]) -> bool:
    """Whether it is two pages or lines, as in 671-685."""
    if len(groups) != 2 or len(groups[0]) != len(groups[1]) or "-" not in plain:
        return False
    return 0 <= int(groups[1]) - int(groups[0]) < 200


def trunk(candidate: Candidate) -> Evidence:
    """Check a number that begins with 0; without a word beside it, it must be in use in one of :data:`REGIONS`."""
    evidence = national(candidate)
    if evidence is not Evidence.FORM or candidate.context:
        return evidence
    digits = digits_of(without_extension(candidate.text))
    return Evidence.FORM if 9 <= len(digits) <= 12 and in_use_in(digits, REGIONS) else Evidence.REJECTED


def reserved_phone(candidate: Candidate) -> bool:
    """Whether it is fiction: 555-0100 to 555-0199 and the 555 area, Ofcom's numbers for drama, counting digits."""
    digits = digits_of(without_extension(candidate.text))
    fiction = _AMERICAN_FICTION.match(candidate.text) or _BRITISH_FICTION.match(digits)
    return bool(fiction) or any(
        run in digits for run in ("012345678", "123456789", "234567890", "987654321", "876543210")
    )


_KINDS_LIST = "fixed_line mobile toll_free premium_rate shared_cost personal_number voip pager uan voicemail"
_KINDS = _KINDS_LIST.split()


def in_use(digits: str) -> bool | None:
    """Tell whether a number is in use, by its digits from the country's code on; None where there is no such code."""
    from phonenumbers import COUNTRY_CODE_TO_REGION_CODE

    for size in (1, 2, 3):
        code = int(digits[:size] or "0")
        if code in COUNTRY_CODE_TO_REGION_CODE and not digits.startswith("0"):
            return _country(code).fullmatch(digits, size) is not None
    return None


def in_use_in(digits: str, regions: tuple[str, ...]) -> bool:
    """Tell whether digits are dialled in one of the regions (ISO 3166 codes), with or without its trunk prefix."""
    return _regions(regions).fullmatch(digits) is not None


@lru_cache(maxsize=512)
def _country(code: int) -> re.Pattern[str]:
    from phonenumbers import COUNTRY_CODE_TO_REGION_CODE, PhoneMetadata

    regions = COUNTRY_CODE_TO_REGION_CODE[code]
    if regions == ("001",):
        return re.compile("|".join(_patterns(PhoneMetadata.metadata_for_nongeo_region(code, None))))
    plans = map(PhoneMetadata.metadata_for_region, regions)
    return re.compile("|".join(pattern for plan in plans for pattern in _patterns(plan)))


@lru_cache(maxsize=8)
def _regions(regions: tuple[str, ...]) -> re.Pattern[str]:
    from phonenumbers import PhoneMetadata

    parts = []
    for region in regions:
        metadata = PhoneMetadata.metadata_for_region(region)
        prefix = metadata.national_prefix if metadata is not None else None
        trunk = f"(?:{prefix})?" if prefix else ""
        parts.append(f"{trunk}(?:{'|'.join(_patterns(metadata))})")
    return re.compile("|".join(parts))


def _patterns(metadata: Any) -> list[str]:
    """Return the patterns of all kinds of numbers that a plan has."""
    if metadata is None:
        return []
    kinds = [getattr(metadata, kind) for kind in _KINDS]
    return [f"(?:{kind.national_number_pattern})" for kind in kinds if kind and kind.national_number_pattern]
