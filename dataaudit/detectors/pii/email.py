"""E-mail addresses: the parts of RFC 5321 that are in use, top-level domains, and addresses that are nobody's."""

from __future__ import annotations

import re

from dataaudit.detectors.patterns.entity import Candidate, Evidence

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
_NOBODY_LIST = "git noreply no-reply donotreply do-not-reply mailer-daemon"
_NOBODY = frozenset(_NOBODY_LIST.split())
_MESSAGE_ID = re.compile(r"[0-9]{8,}[.-]|[0-9a-f]{16,}\Z|[0-9a-f]{8}-[0-9a-f]{4}-")

_IN_URL = re.compile(r"://[^\s/@]*\Z")
"""What stands before is a URL's user or password, so the candidate's first part is the password."""


def email(candidate: Candidate) -> Evidence:
    """Reject file names and broken parts; a known top-level domain is strong, but not in a Message-ID or a URL."""
    local, _, domain = candidate.text.rpartition("@")
    labels = domain.lower().split(".")
    broken = local.startswith(".") or local.endswith(".") or ".." in local or len(domain) > 253
    if broken or labels[-1] in _FILES or any(label.startswith("-") or label.endswith("-") for label in labels):
        return Evidence.REJECTED
    if labels[-1] not in TOP_LEVEL or _MESSAGE_ID.match(local) or _IN_URL.search(candidate.before):
        return Evidence.FORM
    return Evidence.STRONG


def reserved_email(candidate: Candidate) -> bool:
    """Whether nobody can have it (RFC 2606, RFC 6761), a machine has it, or it stands for any address."""
    local, _, domain = candidate.text.lower().rpartition("@")
    labels = domain.split(".")
    if labels[-1] in _SPECIAL or (
        len(labels) > 1 and labels[-2] == "example" and labels[-1] in {"com", "org", "net", "edu"}
    ):
        return True
    return domain in _PLACEHOLDER_DOMAINS or local in _NOBODY or (candidate.after.startswith(":") and local == "git")
